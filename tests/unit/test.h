/* For every unit test: cmocka without its macro `fail`, which would hide base.h's function, and base.h. */
#ifndef SN_TEST_H
#define SN_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "base/base.h"
#endif
