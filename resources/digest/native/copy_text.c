/* Digests the rows of PostgreSQL's COPY text, as the server sent them.

   resources/digest/definition.py defines the canonical form of a row and its digest; this is the
   form of the fields that a server writes under the settings of resources/postgres/settings.py.
   A field that has no such form is an error: nothing is guessed. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <locale.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "MD5 reads words of the memory as they are, with the least byte first"
#endif

typedef unsigned char byte;

enum { LANES = 8, BLOCK = 64, PADDING = 9 };
typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));

static const uint32_t SINES[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

#define ROTATED(x, n) (((x) << (n)) | ((x) >> (32 - (n))))
#define F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define G(x, y, z) ((y) ^ ((z) & ((x) ^ (y))))
#define H(x, y, z) ((x) ^ (y) ^ (z))
#define I(x, y, z) ((y) ^ ((x) | ~(z)))
#define STEP(f, a, b, c, d, i, word, turn) \
    a += f(b, c, d) + words[(word) & 15] + SINES[i]; \
    a = ROTATED(a, turn) + b;
#define FOUR(f, i, first, by, r0, r1, r2, r3) \
    STEP(f, a, b, c, d, i, (first), r0) \
    STEP(f, d, a, b, c, i + 1, (first) + (by), r1) \
    STEP(f, c, d, a, b, i + 2, (first) + 2 * (by), r2) \
    STEP(f, b, c, d, a, i + 3, (first) + 3 * (by), r3)
#define SIXTEEN(f, from, first, by, r0, r1, r2, r3) \
    for (int i = from; i < from + 16; i += 4) { FOUR(f, i, first, by, r0, r1, r2, r3) }

/* MD5 (RFC 1321) of some messages, of whole blocks each: the first 8 bytes of each hash. */
static void md5(const byte *bytes, const size_t *starts, const size_t *blocks, int count,
                int64_t *hashes)
{
    lanes a0 = (lanes){0} + 0x67452301u, b0 = (lanes){0} + 0xefcdab89u;
    lanes c0 = (lanes){0} + 0x98badcfeu, d0 = (lanes){0} + 0x10325476u;
    size_t most = 0;
    for (int lane = 0; lane < count; lane++)
        most = blocks[lane] > most ? blocks[lane] : most;
    for (size_t block = 0; block < most; block++) {
        lanes words[16], on, a = a0, b = b0, c = c0, d = d0;
        for (int lane = 0; lane < LANES; lane++) {
            /* a lane whose message has ended hashes others, for nothing */
            int runs = lane < count && block < blocks[lane];
            const byte *from = runs ? bytes + starts[lane] + block * BLOCK : bytes;
            on[lane] = runs ? ~0u : 0;
            for (int word = 0; word < 16; word++) {
                uint32_t its;
                memcpy(&its, from + 4 * word, 4);
                words[word][lane] = its;
            }
        }
        SIXTEEN(F, 0, i, 1, 7, 12, 17, 22)
        SIXTEEN(G, 16, 5 * i + 1, 5, 5, 9, 14, 20)
        SIXTEEN(H, 32, 3 * i + 5, 3, 4, 11, 16, 23)
        SIXTEEN(I, 48, 7 * i, 7, 6, 10, 15, 21)
        a0 += a & on, b0 += b & on, c0 += c & on, d0 += d & on;
    }
    for (int lane = 0; lane < count; lane++)
        hashes[lane] = (int64_t)((uint64_t)__builtin_bswap32(a0[lane]) << 32 |
                                 __builtin_bswap32(b0[lane]));
}

enum { MOST_WAITING = 1 << 20 };
/* Room for a field beside its own bytes: a number, or zeros behind a point; and for a row's end. */
enum { BESIDE = 320 + 2 * BLOCK };

typedef struct {
    const char *kinds;
    const byte *scales;
    Py_ssize_t columns;
    byte *bytes; /* the messages of the rows that wait, and of the row that is read */
    size_t used, room;
    size_t starts[LANES], blocks[LANES];
    int waiting;
    int64_t rows;
    __int128 sum;
    Py_ssize_t column;   /* the field that is read */
    const char *problem; /* what is wrong with it; "" if there is no memory */
} Digests;

static int reserve(Digests *its, size_t more)
{
    if (its->room - its->used >= more)
        return 1;
    size_t room = (its->used + more) / 2 * 3;
    byte *bytes = realloc(its->bytes, room);
    if (bytes != NULL)
        its->bytes = bytes, its->room = room;
    return bytes != NULL;
}

static void hash_waiting(Digests *its)
{
    int64_t hashes[LANES];
    if (its->waiting)
        md5(its->bytes, its->starts, its->blocks, its->waiting, hashes);
    for (int lane = 0; lane < its->waiting; lane++)
        its->sum += hashes[lane];
    its->waiting = 0, its->used = 0;
}

/* Ends the message that begins at `start` as MD5 wants it. */
static void end_row(Digests *its, size_t start)
{
    size_t length = its->used - start, blocks = (length + PADDING + BLOCK - 1) / BLOCK;
    uint64_t bits = (uint64_t)length * 8;
    memset(its->bytes + its->used, 0, blocks * BLOCK - length);
    its->bytes[its->used] = 0x80;
    its->used = start + blocks * BLOCK;
    memcpy(its->bytes + its->used - 8, &bits, 8);
    its->starts[its->waiting] = start, its->blocks[its->waiting++] = blocks;
    its->rows++;
    if (its->waiting == LANES || its->used > MOST_WAITING)
        hash_waiting(its);
}

typedef struct {
    const byte *at, *end; /* what is still to be read of a field */
} Text;

static int skipped(Text *text, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length) != 0)
        return 0;
    text->at += length;
    return 1;
}

static int is(Text text, const char *word)
{
    return skipped(&text, word) && text.at == text.end;
}

static int is_digit(byte character)
{
    return character >= '0' && character <= '9';
}

static size_t digits_ahead(Text text)
{
    const byte *at = text.at;
    while (at < text.end && is_digit(*at))
        at++;
    return at - text.at;
}

/* Reads a number of `least` to `most` digits, 19 at most, no greater than `limit`. */
static int number(Text *text, size_t least, size_t most, uint64_t limit, int64_t *value)
{
    size_t digits = digits_ahead(*text);
    uint64_t sum = 0;
    if (digits < least || digits > most)
        return 0;
    for (; digits > 0; digits--)
        sum = sum * 10 + (*text->at++ - '0');
    *value = (int64_t)sum;
    return sum <= limit;
}

static byte *written(byte *to, Text text)
{
    memcpy(to, text.at, text.end - text.at);
    return to + (text.end - text.at);
}

static byte *written_number(byte *to, int64_t value)
{
    byte digits[20];
    int count = 0;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    if (value < 0)
        *to++ = '-';
    do
        digits[count++] = '0' + rest % 10;
    while (rest /= 10);
    while (count)
        *to++ = digits[--count];
    return to;
}

static byte *integer(byte *to, Text text)
{
    Text rest = text;
    skipped(&rest, "-");
    size_t digits = digits_ahead(rest);
    return digits && rest.at + digits == rest.end ? written(to, text) : NULL;
}

/* With the target's digits behind the point, unless they are too few. */
static byte *decimal(byte *to, Text text, int scale)
{
    if (is(text, "NaN") || is(text, "Infinity") || is(text, "-Infinity"))
        return written(to, text);
    Text whole = text, behind = {text.end, text.end};
    skipped(&whole, "-");
    size_t digits = digits_ahead(whole), count = 0;
    if (!digits)
        return NULL;
    whole.at += digits;
    if (whole.at < whole.end) {
        behind.at = whole.at + 1;
        digits = digits_ahead(behind);
        if (*whole.at != '.' || !digits || behind.at + digits != behind.end)
            return NULL;
    }
    while (behind.end > behind.at && behind.end[-1] == '0')
        behind.end--;
    count = behind.end - behind.at;
    if (count > (size_t)scale)
        return written(to, text);
    to = written(to, (Text){text.at, whole.at});
    if (scale)
        *to++ = '.';
    to = written(to, behind);
    memset(to, '0', scale - count);
    return to + (scale - count);
}

static locale_t plain_numbers; /* whatever LC_NUMERIC is */

static byte *floating(byte *to, Text text, int single)
{
    int64_t bits;
    char *end;
    if (is(text, "NaN"))
        return written_number(to, 0x7FF8000000000000);
    if (!is(text, "Infinity") && !is(text, "-Infinity"))
        for (const byte *at = text.at; at < text.end; at++)
            if (!is_digit(*at) && *at != '.' && *at != '-' && *at != '+' && *at != 'e')
                return NULL;
    /* it stops at the tab or newline behind the field */
    double value = single ? (double)strtof_l((const char *)text.at, &end, plain_numbers)
                          : strtod_l((const char *)text.at, &end, plain_numbers);
    if (text.at == text.end || (const byte *)end != text.end)
        return NULL;
    memcpy(&bits, &value, 8);
    return written_number(to, bits);
}

/* Days since 1970-01-01 of the proleptic Gregorian calendar. */
static int64_t days_since_1970(int64_t year, int64_t month, int64_t day)
{
    if (month <= 2)
        year--, month += 12;
    int64_t era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
    int64_t of_year = (153 * (month - 3) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* Reads a date and, from the end of the text, its era. */
static int read_date(Text *text, int64_t *days)
{
    int64_t year, month, day;
    int before_christ = text->end - text->at > 3 && memcmp(text->end - 3, " BC", 3) == 0;
    text->end -= before_christ ? 3 : 0;
    if (!number(text, 4, 7, 9999999, &year) || !skipped(text, "-") || !year ||
        !number(text, 2, 2, 12, &month) || !skipped(text, "-") || !month ||
        !number(text, 2, 2, 31, &day) || !day)
        return 0;
    *days = days_since_1970(before_christ ? 1 - year : year, month, day);
    return 1;
}

/* Reads a time of day in microseconds. */
static int read_clock(Text *text, int64_t *ticks)
{
    int64_t hours, minutes, seconds, behind = 0;
    if (!number(text, 2, 2, 24, &hours) || !skipped(text, ":") ||
        !number(text, 2, 2, 59, &minutes) || !skipped(text, ":") ||
        !number(text, 2, 2, 60, &seconds))
        return 0;
    if (skipped(text, ".")) {
        size_t digits = digits_ahead(*text);
        if (!number(text, 1, 6, 999999, &behind))
            return 0;
        for (; digits < 6; digits++)
            behind *= 10;
    }
    *ticks = ((hours * 60 + minutes) * 60 + seconds) * 1000000 + behind;
    return 1;
}

/* A date in days, a time or timestamp in microseconds, or in units of 100 nanoseconds where seven
   digits of a second are declared. */
static byte *moment(byte *to, Text text, char kind, int scale)
{
    Text all = text;
    int64_t days = 0, clock = 0, ticks;
    int dated = kind != 't', timed = kind != 'D', both = dated && timed;
    if (dated && (is(text, "infinity") || is(text, "-infinity")))
        return written(to, text);
    if ((dated && !read_date(&text, &days)) || (both && !skipped(&text, " ")) ||
        (timed && !read_clock(&text, &clock)) || (kind == 'Z' && !skipped(&text, "+00")) ||
        text.at != text.end)
        return NULL;
    if (!timed)
        return written_number(to, days);
    /* what 64 bits do not reach, and the last of them, are written as they are */
    if (__builtin_mul_overflow(days, 86400000000, &ticks) ||
        __builtin_add_overflow(ticks, clock, &ticks) || ticks == INT64_MAX)
        return written(to, all);
    to = written_number(to, ticks);
    if (scale > 6 && ticks)
        *to++ = '0';
    return to;
}

static byte *uuid(byte *to, Text text)
{
    static const char FORM[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    byte wrong = 0;
    if (text.end - text.at != 36)
        return NULL;
    for (int at = 0; at < 36; at++) { /* without branches, side by side */
        byte it = text.at[at], hexadecimal = ((byte)(it - '0') < 10) | ((byte)(it - 'a') < 6);
        wrong |= FORM[at] == '-' ? it != '-' : !hexadecimal;
    }
    return wrong ? NULL : written(to, text);
}

static byte *unescaped(byte *to, Text text)
{
    static const char LETTERS[] = "bfnrtv\\", MEANT[] = "\b\f\n\r\t\v\\";
    while (text.at < text.end) {
        byte character = *text.at++;
        if (character == '\\') {
            const char *letter = text.at < text.end ? memchr(LETTERS, *text.at++, 7) : NULL;
            if (letter == NULL)
                return NULL;
            character = MEANT[letter - LETTERS];
        }
        *to++ = character;
    }
    return to;
}

/* The number of bytes, a colon, the bytes; `padded` texts without their last blanks. */
static byte *text_of(byte *to, Text text, int escaped, int padded)
{
    byte *aside = to + 24; /* behind the longest number and its colon */
    if (escaped)
        text = (Text){aside, unescaped(aside, text)};
    if (text.end == NULL)
        return NULL;
    while (padded && text.end > text.at && text.end[-1] == ' ')
        text.end--;
    size_t length = text.end - text.at;
    to = written_number(to, length);
    *to++ = ':';
    memmove(to, text.at, length);
    return to + length;
}

static byte *canonical(byte *to, Text text, char kind, int scale, int escaped)
{
    if (escaped && kind != 's' && kind != 'p')
        return NULL;
    switch (kind) {
    case 'i': return integer(to, text);
    case 'b': return is(text, "t") || is(text, "f") ? written_number(to, *text.at == 't') : NULL;
    case 'd': return decimal(to, text, scale);
    case 'f': case 'r': return floating(to, text, kind == 'r');
    case 'D': case 't': case 'T': case 'Z': return moment(to, text, kind, scale);
    case 'u': return uuid(to, text);
    case 's': case 'p': return text_of(to, text, escaped, kind == 'p');
    }
    return NULL;
}

#define EIGHT(character) (0x0101010101010101u * (byte)(character))
#define ZEROS(word) (((word) - EIGHT(1)) & ~(word) & EIGHT(0x80)) /* the first one is certain */

/* The next tab, newline or backslash, or the end. */
static const byte *next_mark(const byte *at, const byte *end)
{
    for (uint64_t word, marks; end - at >= 8; at += 8) {
        memcpy(&word, at, 8);
        marks = ZEROS(word ^ EIGHT('\t')) | ZEROS(word ^ EIGHT('\n')) | ZEROS(word ^ EIGHT('\\'));
        if (marks)
            return at + __builtin_ctzll(marks) / 8;
    }
    while (at < end && *at != '\t' && *at != '\n' && *at != '\\')
        at++;
    return at;
}

/* Returns what is behind a row; NULL if it does not end here, or if there is a problem. */
static const byte *read_row(Digests *its, const byte *at, const byte *end)
{
    size_t start = its->used;
    for (its->column = 0; its->column < its->columns; its->column++) {
        Text text = {at, next_mark(at, end)};
        int escaped = 0;
        while (text.end < end && *text.end == '\\') {
            escaped = 1;
            text.end = end - text.end > 2 ? next_mark(text.end + 2, end) : end;
        }
        if (text.end == end) {
            its->used = start;
            return NULL;
        }
        its->problem = "the row has other columns than it should";
        if ((*text.end == '\n') != (its->column == its->columns - 1))
            return NULL;
        its->problem = "";
        if (!reserve(its, (text.end - text.at) + BESIDE))
            return NULL;
        byte *to = its->bytes + its->used;
        if (its->column)
            *to++ = ',';
        its->problem = "the value is not written as its type is";
        if (is(text, "\\N"))
            *to++ = '~';
        else if ((to = canonical(to, text, its->kinds[its->column], its->scales[its->column],
                                 escaped)) == NULL)
            return NULL;
        its->problem = NULL;
        its->used = to - its->bytes;
        at = text.end + 1;
    }
    end_row(its, start);
    return at;
}

PyDoc_STRVAR(digest_doc,
"digest(buffer, kinds, scales)\n--\n\n"
"Digest the whole rows of a buffer of COPY text, of which the last one may be cut.\n\n"
"`kinds` has a letter for each column, and `scales` a byte, its digits behind the point. Returns\n"
"how many bytes were read, the number of rows, and the sum of their digests: a signed integer of\n"
"16 bytes, least byte first. Raises ValueError, with row and column from 1, if a value or a row is\n"
"not what it should be.\n");

static PyObject *digest(PyObject *module, PyObject *args)
{
    Digests its = {.problem = NULL};
    Py_buffer buffer, kinds, scales;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*", &buffer, &kinds, &scales))
        return NULL;
    const byte *begin = buffer.buf, *at = begin, *next = at;
    int sound = kinds.len && kinds.len == scales.len;
    its.kinds = kinds.buf, its.scales = scales.buf, its.columns = kinds.len;
    Py_BEGIN_ALLOW_THREADS
    while (sound && (next = read_row(&its, at, begin + buffer.len)))
        at = next;
    if (!its.problem)
        hash_waiting(&its);
    Py_END_ALLOW_THREADS
    if (!sound)
        PyErr_SetString(PyExc_ValueError, "a column should have one kind and one scale");
    else if (its.problem && !*its.problem)
        PyErr_NoMemory();
    else if (its.problem)
        PyErr_Format(PyExc_ValueError, "row %lld, column %zd: %s", (long long)its.rows + 1,
                     its.column + 1, its.problem);
    else
        result = Py_BuildValue("nLy#", (Py_ssize_t)(at - begin), (long long)its.rows,
                               (const char *)&its.sum, (Py_ssize_t)sizeof its.sum);
    free(its.bytes);
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&kinds);
    PyBuffer_Release(&scales);
    return result;
}

static PyMethodDef METHODS[] = {{"digest", digest, METH_VARARGS, digest_doc}, {NULL}};

static PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "copy_text", .m_methods = METHODS,
};

PyMODINIT_FUNC PyInit_copy_text(void)
{
    plain_numbers = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return plain_numbers ? PyModule_Create(&MODULE) : PyErr_NoMemory();
}
