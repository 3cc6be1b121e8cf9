/* For every unit test: cmocka without its macro `fail`, which would hide base.h's function, and base.h. */
#ifndef SN_TEST_H
#define SN_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))
#include "base/base.h"
#endif
