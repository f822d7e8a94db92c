/* Read before the first line of every QuickJS source file (the build passes it with -include).
 *
 * Two things that QuickJS-ng gives up on WASI work there all the same: the stack limit, because the shadow stack lives
 * in linear memory, and byte accounting, because the allocator knows the size of a block. QuickJS switches both off when
 * it sees __wasi__. So the system headers are read first, with __wasi__ in force (their guards keep them from being read
 * twice), and the macro is hidden afterwards.
 *
 * The engine's allocator is ours (src/engine/heap.rs): it keeps the heap limit and remembers that it was hit.
 */
#ifndef CODEMODE_ENGINE_CONFIG_H
#define CODEMODE_ENGINE_CONFIG_H

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fenv.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#undef __wasi__
#define __GLIBC__ 2

void *codemode_malloc(size_t size);
void *codemode_calloc(size_t count, size_t size);
void *codemode_realloc(void *block, size_t size);
void codemode_free(void *block);

#define malloc codemode_malloc
#define calloc codemode_calloc
#define realloc codemode_realloc
#define free codemode_free

/* QuickJS notes source positions of calls, of `throw` and of expression statements. An error at any other place, say a
 * property read on null behind `return`, would show the position before it. So one more is noted where an expression
 * begins that isn't an argument or an element, and the one before is noted again where it ends: a call has its position
 * noted before its arguments, and its own instruction comes after them. The parser's call
 * `js_parse_assign_expr2(s, parse_flags)` is replaced for that. The parts are glued by their first words, which leaves the
 * declaration, the definition and the calls with constants as they are. */
static __attribute__((unused)) struct {
    const void *function;
    int line, column;
} codemode_noted;

#define js_parse_assign_expr2(parser, flags) CODEMODE_##parser CODEMODE_##flags)
#define CODEMODE_JSParseState js_parse_assign_expr2_(JSParseState
#define CODEMODE_int , int
#define CODEMODE_s CODEMODE_CALL(s
#define CODEMODE_parse_flags , noted, parse_flags
#define CODEMODE_PF_IN_ACCEPTED , plain, PF_IN_ACCEPTED
#define CODEMODE_0 , plain, 0
#define CODEMODE_CALL(...) CODEMODE_CALL_AS(__VA_ARGS__)
#define CODEMODE_CALL_AS(s, how, flags) CODEMODE_CALL_##how(s, flags)
#define CODEMODE_CALL_plain(s, flags) js_parse_assign_expr2_(s, flags)
#define CODEMODE_CALL_noted(s, flags) ({ \
    __typeof__(codemode_noted) before = codemode_noted; \
    codemode_noted.function = (s)->cur_func; \
    codemode_noted.line = (s)->token.line_num; \
    codemode_noted.column = (s)->token.col_num; \
    emit_source_loc(s); \
    int parsed = js_parse_assign_expr2_(s, flags); \
    codemode_noted = before; \
    if (parsed == 0 && before.function == (s)->cur_func) \
        emit_source_loc_at(s, before.line, before.column); \
    parsed; \
})

#endif
