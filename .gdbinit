# For gdb in this folder (once: echo "add-auto-load-safe-path ." >> ~/.config/gdb/gdbinit): gdb --args build/sinter run MODEL
set print pretty on
set breakpoint pending on

# A failure and a broken invariant stop here: `up` leads to what was being done.
break assert_failed
break fail
break fail_again

define pgraph
    set $t = (Text *)arena_alloc((Arena *)($arg0)->arena, sizeof(Text))
    set $t->arena = ($arg0)->arena
    call (void)graph_print($t, $arg0)
    printf "%s\n", $t->at
end
document pgraph
pgraph GRAPH: all nodes of a graph, as SN_DEBUG=5 prints them.
end

define pnode
    set $t = (Text *)arena_alloc((Arena *)($arg0)->arena, sizeof(Text))
    set $t->arena = ($arg0)->arena
    call (void)node_print($t, $arg0, $arg1)
    printf "%s\n", $t->at
end
document pnode
pnode GRAPH NODE: one node.
end

define pdim
    set $t = (Text *)arena_alloc((Arena *)($arg0)->arena, sizeof(Text))
    set $t->arena = ($arg0)->arena
    call (void)dim_print($t, $arg0, $arg1)
    printf "%s\n", $t->at
end
document pdim
pdim GRAPH DIM: an integer expression: a size, an index.
end

define ptensor
    printf "%s, rank %d:", dtype_info[($arg0)->dt].name, ($arg0)->rank
    set $k = 0
    while $k < ($arg0)->rank
        printf " %ld", ($arg0)->dims[$k]
        set $k = $k + 1
    end
    printf "\n"
end
document ptensor
ptensor TENSOR: element type and shape.
end
