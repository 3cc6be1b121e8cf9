#!/bin/bash
# strip.sh [--strings] FILE: C source without comments (and, with --strings, with empty strings); lines keep their numbers.
strings=0
[ "$1" != --strings ] || { strings=1; shift; }
STRINGS=$strings exec perl -0777 -pe '
    s{(/\*.*?\*/|//[^\n]*)|("(?:[^"\\\n]|\\.)*")|(\x27(?:[^\x27\\\n]|\\.)*\x27)}{
        my ($comment, $string, $char) = ($1, $2, $3);
        if (defined $comment) { $comment =~ tr/\n//cd; $comment eq "" ? " " : $comment }
        elsif (defined $string) { $ENV{STRINGS} && $string !~ m{^"[\w/]+\.\w+"$} ? "\"\"" : $string }
        else { $ENV{STRINGS} ? "\x27 \x27" : $char }
    }gse' "$1"
