/* Messages as blocks of bytes: text to print, or Arrow buffers. No Python object is made for a message.
 *
 * This module uses the librdkafka that confluent-kafka has loaded: its functions are looked up with dlsym behind
 * confluent_kafka.cimpl, whatever the bundled file is called. Nothing is linked, and no header of librdkafka is needed:
 * what is declared here is the public interface of version 2, and no other version is accepted.
 *
 * Handle: a librdkafka consumer and its queue. It is counted: its Reader, each Batch and each call hold it, and the last
 *         of them frees it. The count is changed with the interpreter's lock held.
 * Reader: a consumer that only assigns. Any thread may close it at any time.
 * Batch:  messages, and the handle that they belong to. release() frees them, as soon as no call works on them.
 * Block:  bytes that Python and pyarrow read in place. It owns its memory.
 *
 * Between Py_BEGIN_ALLOW_THREADS and Py_END_ALLOW_THREADS no Python object is touched. No mutex is held while the
 * interpreter's lock is waited for. A process that was forked off has none of librdkafka's threads: there every call
 * raises, and nothing of a handle is freed.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------- librdkafka's public interface */

typedef struct rd_kafka_s Kafka;
typedef struct rd_kafka_conf_s Conf;
typedef struct rd_kafka_topic_s Topic;
typedef struct rd_kafka_queue_s Queue;
typedef struct rd_kafka_headers_s Headers;
typedef struct rd_kafka_error_s Failure;
typedef struct rd_kafka_topic_partition_list_s List;
typedef struct {
    int err;
    Topic *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private;
} Message;
typedef struct { /* as rd_kafka_topic_partition_t begins */
    char *topic;
    int32_t partition;
    int64_t offset;
} Position;
enum { CONSUMER = 1, CONF_OK = 0, INVALID_ARGUMENT = -186, NO_TIMESTAMP = 0, CREATE_TIME = 1, LOG_APPEND_TIME = 2 };

#define FUNCTIONS(F) \
    F(int, version, (void)) \
    F(const char *, version_str, (void)) \
    F(Conf *, conf_new, (void)) \
    F(void, conf_destroy, (Conf *)) \
    F(int, conf_set, (Conf *, const char *, const char *, char *, size_t)) \
    F(void, conf_set_opaque, (Conf *, void *)) \
    F(void, conf_set_log_cb, (Conf *, void (*)(const Kafka *, int, const char *, const char *))) \
    F(void, conf_set_error_cb, (Conf *, void (*)(Kafka *, int, const char *, void *))) \
    F(void *, opaque, (const Kafka *)) \
    F(Kafka *, new, (int, Conf *, char *, size_t)) \
    F(int, set_log_queue, (Kafka *, Queue *)) \
    F(int, poll_set_consumer, (Kafka *)) \
    F(Queue *, queue_get_consumer, (Kafka *)) \
    F(void, queue_io_event_enable, (Queue *, int, const void *, size_t)) \
    F(void, queue_destroy, (Queue *)) \
    F(List *, topic_partition_list_new, (int)) \
    F(Position *, topic_partition_list_add, (List *, const char *, int32_t)) \
    F(void, topic_partition_list_destroy, (List *)) \
    F(int, assign, (Kafka *, const List *)) \
    F(Failure *, incremental_assign, (Kafka *, const List *)) \
    F(Failure *, incremental_unassign, (Kafka *, const List *)) \
    F(int, error_code, (const Failure *)) \
    F(void, error_destroy, (Failure *)) \
    F(const char *, err2str, (int)) \
    F(ssize_t, consume_batch_queue, (Queue *, int, Message **, size_t)) \
    F(void, message_destroy, (Message *)) \
    F(const char *, message_errstr, (const Message *)) \
    F(int64_t, message_timestamp, (const Message *, int *)) \
    F(int, message_headers, (const Message *, Headers **)) \
    F(int, message_detach_headers, (Message *, Headers **)) \
    F(void, headers_destroy, (Headers *)) \
    F(int, header_get_all, (const Headers *, size_t, const char **, const void **, size_t *)) \
    F(const char *, topic_name, (const Topic *)) \
    F(int, query_watermark_offsets, (Kafka *, const char *, int32_t, int64_t *, int64_t *, int)) \
    F(int, consumer_close, (Kafka *)) \
    F(void, destroy, (Kafka *))

static struct {
#define F(result, name, arguments) result(*name) arguments;
    FUNCTIONS(F)
#undef F
} rk;

static PyObject *NativeError; /* (librdkafka's code, text) */
static PyTypeObject *BlockType, *BatchType;

/* Fills ``rk`` from the library at ``path``, which is loaded already, and from those that it needs; a librdkafka that was
 * preloaded comes first, as it does for confluent-kafka. The library is kept for as long as the process lives. */
static int load_librdkafka(const char *path) {
    void *library = dlopen(NULL, RTLD_NOW);
    if (library == NULL || dlsym(library, "rd_kafka_new") == NULL) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        PyErr_SetString(PyExc_ImportError, dlerror());
        return -1;
    }
#define F(result, name, arguments) \
    if ((*(void **)&rk.name = dlsym(library, "rd_kafka_" #name)) == NULL) { \
        PyErr_SetString(PyExc_ImportError, "librdkafka has no rd_kafka_" #name); \
        return -1; \
    }
    FUNCTIONS(F)
#undef F
    if (rk.version() >> 24 != 2) {
        PyErr_Format(PyExc_ImportError, "librdkafka %s is not of version 2", rk.version_str());
        return -1;
    }
    return 0;
}

static PyObject *decoded(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* Raises NativeError. The text may end within a character: librdkafka cuts what it quotes. */
static void *fail(int code, const char *text) {
    PyObject *reason = decoded(text), *error = reason ? Py_BuildValue("(iN)", code, reason) : NULL;
    if (error != NULL) PyErr_SetObject(NativeError, error);
    Py_XDECREF(error);
    return NULL;
}

/* ---------------------------------------------------------------- growing bytes */

/* ``data`` is owned, from malloc. Whoever has reserved room may put so many bytes. */
typedef struct {
    char *data;
    size_t used, room;
} Text;

/* Makes room for ``more`` bytes; 0 where there is no memory, and the text is as it was. */
static int reserve(Text *text, size_t more) {
    if (text->room - text->used >= more) return 1;
    if (more > SIZE_MAX / 4 || text->room > SIZE_MAX / 4) return 0;
    size_t room = text->room < 4096 ? 4096 : text->room;
    while (room - text->used < more) room *= 2;
    char *data = realloc(text->data, room);
    if (data == NULL) return 0;
    text->data = data;
    text->room = room;
    return 1;
}

static inline void put(Text *text, const void *bytes, size_t count) {
    if (count) memcpy(text->data + text->used, bytes, count); /* a null key has no address */
    text->used += count;
}

static inline void put_text(Text *text, const char *literal) { put(text, literal, strlen(literal)); }

static const char PAIRS[] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
enum { DIGITS = 20 /* of a 64-bit number, with its sign */ };

static void put_number(Text *text, int64_t number) {
    char digits[DIGITS], *start = digits + DIGITS;
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    for (; rest >= 100; rest /= 100) memcpy(start -= 2, PAIRS + rest % 100 * 2, 2);
    if (rest >= 10)
        memcpy(start -= 2, PAIRS + rest * 2, 2);
    else
        *--start = (char)('0' + rest);
    if (number < 0) *--start = '-';
    put(text, start, (size_t)(digits + DIGITS - start));
}

/* ---------------------------------------------------------------- blocks */

typedef struct {
    PyObject_HEAD
    char *data; /* owned, from malloc; NULL where it is empty */
    size_t size;
} Block;

/* A block that owns ``data``, also where it fails. */
static PyObject *block_of(void *data, size_t size) {
    Block *block = (Block *)PyType_GenericAlloc(BlockType, 0);
    if (block == NULL) {
        free(data);
        return NULL;
    }
    block->data = data;
    block->size = size;
    return (PyObject *)block;
}

/* A block of what a text holds, which is empty then. */
static PyObject *block_of_text(Text *text) {
    PyObject *block = block_of(text->data, text->used);
    memset(text, 0, sizeof *text);
    return block;
}

static void free_instance(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static void block_dealloc(PyObject *self) {
    free(((Block *)self)->data);
    free_instance(self);
}

static int block_buffer(PyObject *self, Py_buffer *view, int flags) {
    static char nothing[8];
    Block *block = (Block *)self;
    return PyBuffer_FillInfo(view, self, block->data ? block->data : nothing, (Py_ssize_t)block->size, 1, flags);
}

static Py_ssize_t block_length(PyObject *self) { return (Py_ssize_t)((Block *)self)->size; }

static PyType_Slot block_slots[] = {
    {Py_tp_dealloc, block_dealloc}, {Py_bf_getbuffer, block_buffer}, {Py_sq_length, block_length}, {0, NULL}};
static PyType_Spec block_spec = {
    "zkgroup.clients.kafka._native.Block", sizeof(Block), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, block_slots};

/* ---------------------------------------------------------------- UTF-8 and JSON */

static inline int is_continued(const unsigned char *at, size_t place) { return (at[place] & 0xC0) == 0x80; }

/* The width of the UTF-8 character of several bytes at ``at``, of which ``left`` are there; 0 where there is none. It is
 * as strict as Python's decoder: no overlong forms, no surrogates, nothing above U+10FFFF. */
static size_t character_width(const unsigned char *at, size_t left) {
    if (at[0] >= 0xC2 && at[0] <= 0xDF) return left > 1 && is_continued(at, 1) ? 2 : 0;
    if (at[0] >= 0xE0 && at[0] <= 0xEF) {
        if (left < 3 || !is_continued(at, 1) || !is_continued(at, 2)) return 0;
        if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] >= 0xA0)) return 0;
        return 3;
    }
    if (at[0] >= 0xF0 && at[0] <= 0xF4) {
        if (left < 4 || !is_continued(at, 1) || !is_continued(at, 2) || !is_continued(at, 3)) return 0;
        if ((at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] >= 0x90)) return 0;
        return 4;
    }
    return 0;
}

static inline uint64_t repeated(unsigned char byte) { return UINT64_C(0x0101010101010101) * byte; }

/* How many of the first bytes are ASCII. */
static size_t ascii_length(const unsigned char *bytes, size_t length) {
    size_t at = 0;
    for (uint64_t eight; at + 8 <= length; at += 8) {
        memcpy(&eight, bytes + at, 8);
        if (eight & repeated(0x80)) break;
    }
    while (at < length && bytes[at] < 0x80) at++;
    return at;
}

static int is_utf8(const unsigned char *bytes, size_t length) {
    for (size_t at = 0;;) {
        at += ascii_length(bytes + at, length - at);
        if (at >= length) return 1;
        size_t width = character_width(bytes + at, length - at);
        if (width == 0) return 0;
        at += width;
    }
}

/* How many of the first bytes a JSON string holds as they are: ASCII but control characters, quotes, backslashes. */
static size_t plain_length(const unsigned char *bytes, size_t length) {
    size_t at = 0;
    for (uint64_t eight; at + 8 <= length; at += 8) {
        memcpy(&eight, bytes + at, 8);
        uint64_t quotes = eight ^ repeated('"'), slashes = eight ^ repeated('\\');
        if (((eight - repeated(0x20)) | (quotes - repeated(1)) | (slashes - repeated(1)) | eight) & repeated(0x80)) break;
    }
    while (at < length && bytes[at] >= 0x20 && bytes[at] < 0x80 && bytes[at] != '"' && bytes[at] != '\\') at++;
    return at;
}

/* Puts a JSON string. 0, and the text as it was, where the bytes are no UTF-8. Room: 6 for each byte, and 2. */
static int put_string(Text *text, const unsigned char *bytes, size_t length) {
    static const char names[] = "btn?fr"; /* of the characters 8 to 13; 11 has none */
    static const char hex[] = "0123456789abcdef";
    size_t before = text->used;
    text->data[text->used++] = '"';
    for (size_t at = 0;;) {
        size_t run = plain_length(bytes + at, length - at);
        put(text, bytes + at, run);
        if ((at += run) >= length) break;
        unsigned char byte = bytes[at];
        if (byte >= 0x80) {
            size_t width = character_width(bytes + at, length - at);
            if (width == 0) {
                text->used = before;
                return 0;
            }
            put(text, bytes + at, width);
            at += width;
            continue;
        }
        char escape[6] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
        size_t width = 6;
        if (byte == '"' || byte == '\\') escape[1] = (char)byte, width = 2;
        if (byte >= 8 && byte <= 13 && byte != 11) escape[1] = names[byte - 8], width = 2;
        put(text, escape, width);
        at++;
    }
    text->data[text->used++] = '"';
    return 1;
}

/* Room: 4 for each 3 bytes begun. */
static void put_base64(Text *text, const unsigned char *bytes, size_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t at = 0; at < length; at += 3) {
        size_t left = length - at;
        uint32_t three = (uint32_t)bytes[at] << 16 | (left > 1 ? (uint32_t)bytes[at + 1] << 8 : 0) |
                         (left > 2 ? bytes[at + 2] : 0);
        char four[4] = {digits[three >> 18], digits[three >> 12 & 63], '=', '='};
        if (left > 1) four[2] = digits[three >> 6 & 63];
        if (left > 2) four[3] = digits[three & 63];
        put(text, four, 4);
    }
}

/* Puts a key or a value: text, {"base64": …} or null. Makes its own room, with some to spare; 0: no memory. */
static int put_content(Text *text, const void *bytes, size_t length) {
    if (length > SIZE_MAX / 8 || !reserve(text, 6 * length + 64)) return 0;
    if (bytes == NULL)
        put_text(text, "null");
    else if (!put_string(text, bytes, length)) {
        put_text(text, "{\"base64\":\"");
        put_base64(text, bytes, length);
        put_text(text, "\"}");
    }
    return 1;
}

enum { MAX_LEVELS = 1024 };

static const unsigned char *skip_space(const unsigned char *at, const unsigned char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
    return at;
}

static const unsigned char *skip_digits(const unsigned char *at, const unsigned char *end) {
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at;
}

/* The number of a \u escape's four digits, of which ``at`` is the first; -1 where they are none. */
static int32_t escaped_unit(const unsigned char *at, const unsigned char *end) {
    int32_t unit = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        unsigned char digit = at[i];
        if (digit >= '0' && digit <= '9')
            unit = unit * 16 + digit - '0';
        else if ((digit | 0x20) >= 'a' && (digit | 0x20) <= 'f')
            unit = unit * 16 + (digit | 0x20) - 'a' + 10;
        else
            return -1;
    }
    return unit;
}

/* Behind the JSON string that begins at ``at``; NULL where there is none. */
static const unsigned char *skip_string(const unsigned char *at, const unsigned char *end) {
    if (at >= end || *at++ != '"') return NULL;
    for (;;) {
        at += plain_length(at, (size_t)(end - at));
        if (at >= end) return NULL;
        if (*at == '"') return at + 1;
        if (*at >= 0x80) {
            size_t width = character_width(at, (size_t)(end - at));
            if (width == 0) return NULL;
            at += width;
            continue;
        }
        if (*at != '\\' || end - at < 2) return NULL;
        if (at[1] != 'u') {
            if (at[1] == 0 || strchr("\"\\/bfnrt", at[1]) == NULL) return NULL;
            at += 2;
            continue;
        }
        int32_t unit = escaped_unit(at + 2, end);
        if (unit < 0 || (unit >= 0xDC00 && unit <= 0xDFFF)) return NULL;
        at += 6;
        if (unit >= 0xD800 && unit <= 0xDBFF) { /* only in a pair */
            if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return NULL;
            unit = escaped_unit(at + 2, end);
            if (unit < 0xDC00 || unit > 0xDFFF) return NULL;
            at += 6;
        }
    }
}

/* Behind the number or word that begins at ``at``; NULL where there is none. */
static const unsigned char *skip_scalar(const unsigned char *at, const unsigned char *end) {
    size_t left = (size_t)(end - at);
    if (left >= 4 && (memcmp(at, "true", 4) == 0 || memcmp(at, "null", 4) == 0)) return at + 4;
    if (left >= 5 && memcmp(at, "false", 5) == 0) return at + 5;
    if (at < end && *at == '-') at++;
    if (at >= end || *at < '0' || *at > '9') return NULL;
    at = *at == '0' ? at + 1 : skip_digits(at, end);
    if (at < end && *at == '.') {
        const unsigned char *digits = at + 1;
        if ((at = skip_digits(digits, end)) == digits) return NULL;
    }
    if (at < end && (*at | 0x20) == 'e') {
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        const unsigned char *digits = at;
        if ((at = skip_digits(digits, end)) == digits) return NULL;
    }
    return at;
}

/* Whether the bytes are one JSON value, as message_contents.is_json says: UTF-8, at most MAX_LEVELS levels, no lone surrogate
 * as an escape. */
static int is_json(const unsigned char *bytes, size_t length) {
    const unsigned char *at = bytes, *end = bytes + length;
    unsigned char is_object[MAX_LEVELS];
    int levels = 0, is_fresh = 0; /* just behind an opening bracket */
    for (;;) {
        at = skip_space(at, end);
        if (is_fresh && at < end && *at == (is_object[levels - 1] ? '}' : ']')) {
            at++;
            levels--;
        } else {
            if (levels > 0 && is_object[levels - 1]) {
                if ((at = skip_string(at, end)) == NULL) return 0;
                at = skip_space(at, end);
                if (at >= end || *at++ != ':') return 0;
                at = skip_space(at, end);
            }
            if (at >= end) return 0;
            if (*at == '[' || *at == '{') {
                if (levels == MAX_LEVELS) return 0;
                is_object[levels++] = *at++ == '{';
                is_fresh = 1;
                continue;
            }
            at = *at == '"' ? skip_string(at, end) : skip_scalar(at, end);
            if (at == NULL) return 0;
        }
        is_fresh = 0;
        at = skip_space(at, end);
        while (levels > 0 && at < end && *at == (is_object[levels - 1] ? '}' : ']')) {
            levels--;
            at = skip_space(at + 1, end);
        }
        if (levels == 0) return at == end;
        if (at >= end || *at++ != ',') return 0;
    }
}

/* ---------------------------------------------------------------- handles, readers and batches */

/* A line of librdkafka's log, or an error of the client as a whole. */
typedef struct Note {
    struct Note *next;
    int is_error, code; /* the error's code, or the line's level */
    char facility[32];
    char text[];
} Note;

enum { MAX_NOTES = 1000 };

/* See the top of this file. ``users``: its reader, batches and calls. ``calls``: of these, calls of the reader's. */
typedef struct {
    Kafka *kafka;
    Queue *queue;
    pid_t process; /* that made it */
    int users, calls, is_closing, is_closed;
    double mean; /* recent size of a message, in bytes */
    pthread_mutex_t lock; /* of what follows: librdkafka calls back without the interpreter's lock */
    Note *notes, **last;
    int note_count;
} Handle;

typedef struct {
    PyObject_HEAD
    Handle *handle; /* counted; NULL when the reader is closed */
} Reader;

typedef struct {
    PyObject_HEAD
    Handle *handle;     /* counted; NULL when the messages are freed */
    Message **messages; /* owned, as is the array */
    Py_ssize_t count, gone; /* messages; the first so many are freed */
    int calls, is_released;
    pthread_mutex_t lock; /* of the messages' headers: librdkafka unpacks them when they are asked for first */
    int64_t value_bytes, key_bytes, header_bytes;
    PyObject *runs, *events;
} Batch;

static void add_note(Handle *handle, int is_error, int code, const char *facility, const char *text) {
    size_t length = strlen(text);
    Note *note = malloc(sizeof(Note) + length + 1);
    if (note == NULL) return; /* a log line less */
    note->next = NULL;
    note->is_error = is_error;
    note->code = code;
    strncpy(note->facility, facility, sizeof note->facility - 1);
    note->facility[sizeof note->facility - 1] = 0;
    memcpy(note->text, text, length + 1);
    pthread_mutex_lock(&handle->lock);
    if (handle->note_count < MAX_NOTES) {
        handle->note_count++;
        *handle->last = note;
        handle->last = &note->next;
        note = NULL;
    }
    pthread_mutex_unlock(&handle->lock);
    free(note);
}

/* All notes, which the caller owns. */
static Note *take_notes(Handle *handle) {
    pthread_mutex_lock(&handle->lock);
    Note *notes = handle->notes;
    handle->notes = NULL;
    handle->last = &handle->notes;
    handle->note_count = 0;
    pthread_mutex_unlock(&handle->lock);
    return notes;
}

static void free_notes(Note *notes) {
    while (notes != NULL) {
        Note *next = notes->next;
        free(notes);
        notes = next;
    }
}

static void on_log(const Kafka *kafka, int level, const char *facility, const char *text) {
    if (kafka != NULL && rk.opaque(kafka) != NULL) add_note(rk.opaque(kafka), 0, level, facility, text);
}

static void on_error(Kafka *kafka, int code, const char *text, void *handle) { add_note(handle, 1, code, "", text); }

static int is_forked(const Handle *handle) { return handle->process != getpid(); }

/* To be called when a count has fallen or the reader is closed; with the interpreter's lock. Closes the consumer as soon
 * as no call is inside, so that it fetches no more; frees the handle when nobody uses it. */
static void settle(Handle *handle) {
    if (is_forked(handle)) return; /* its threads are in another process: to free it would wait for them */
    if (handle->is_closing && !handle->is_closed && handle->calls == 0) {
        handle->is_closed = 1;
        handle->users++; /* while others run */
        Py_BEGIN_ALLOW_THREADS;
        rk.consumer_close(handle->kafka);
        Py_END_ALLOW_THREADS;
        handle->users--;
    }
    if (handle->users > 0) return;
    Py_BEGIN_ALLOW_THREADS;
    if (handle->queue != NULL) rk.queue_destroy(handle->queue); /* NULL: no group.id */
    rk.destroy(handle->kafka); /* waits for its threads; its messages are freed already */
    Py_END_ALLOW_THREADS;
    free_notes(handle->notes);
    pthread_mutex_destroy(&handle->lock);
    free(handle);
}

/* A call on the reader begins: its handle, which the call holds until leave(); NULL, with an exception, where it is
 * closed or was made before a fork. */
static Handle *enter(Reader *self) {
    Handle *handle = self->handle;
    if (handle == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the reader is closed");
        return NULL;
    }
    if (is_forked(handle)) {
        PyErr_SetString(PyExc_RuntimeError, "the reader was made by another process");
        return NULL;
    }
    handle->users++;
    handle->calls++;
    return handle;
}

static void leave(Handle *handle) {
    handle->users--;
    handle->calls--;
    settle(handle);
}

static int set_property(Conf *conf, PyObject *key, PyObject *value) {
    char problem[512];
    const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
    const char *text = name ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    if (text == NULL) return 0;
    if (rk.conf_set(conf, name, text, problem, sizeof problem) == CONF_OK) return 1;
    fail(INVALID_ARGUMENT, problem);
    return 0;
}

/* Reader({name: value, …}): all of librdkafka's properties, as text. */
static PyObject *reader_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    PyObject *properties, *key, *value;
    char problem[512];
    if (!PyArg_ParseTuple(arguments, "O!", &PyDict_Type, &properties)) return NULL;
    Reader *self = (Reader *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    Handle *handle = calloc(1, sizeof(Handle));
    if (handle == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    handle->process = getpid();
    handle->users = 1;
    handle->mean = 1 << 20; /* the first batches are small */
    handle->last = &handle->notes;
    if (pthread_mutex_init(&handle->lock, NULL)) {
        free(handle);
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    Conf *conf = rk.conf_new(); /* aborts where there is no memory, as all of librdkafka does */
    int is_set = 1;
    for (Py_ssize_t at = 0; is_set && PyDict_Next(properties, &at, &key, &value);) is_set = set_property(conf, key, value);
    if (is_set) {
        rk.conf_set(conf, "log.queue", "true", problem, sizeof problem);
        rk.conf_set_opaque(conf, handle);
        rk.conf_set_log_cb(conf, on_log);
        rk.conf_set_error_cb(conf, on_error);
        Py_BEGIN_ALLOW_THREADS;
        handle->kafka = rk.new (CONSUMER, conf, problem, sizeof problem); /* owns conf, unless it fails */
        Py_END_ALLOW_THREADS;
        if (handle->kafka == NULL) fail(INVALID_ARGUMENT, problem);
    }
    if (handle->kafka == NULL) {
        rk.conf_destroy(conf);
        free_notes(handle->notes);
        pthread_mutex_destroy(&handle->lock);
        free(handle);
        Py_DECREF(self);
        return NULL;
    }
    rk.set_log_queue(handle->kafka, NULL);
    rk.poll_set_consumer(handle->kafka);
    handle->queue = rk.queue_get_consumer(handle->kafka);
    self->handle = handle;
    if (handle->queue != NULL) return (PyObject *)self;
    fail(INVALID_ARGUMENT, "a reader needs a group.id");
    Py_DECREF(self);
    return NULL;
}

/* close(): batches stay as they are. A call in another thread ends first, and the consumer with it. */
static PyObject *reader_close(PyObject *me, PyObject *nothing) {
    Reader *self = (Reader *)me;
    Handle *handle = self->handle;
    self->handle = NULL;
    if (handle != NULL) {
        handle->is_closing = 1;
        handle->users--;
        settle(handle);
    }
    Py_RETURN_NONE;
}

static void reader_dealloc(PyObject *me) {
    Py_XDECREF(reader_close(me, NULL));
    free_instance(me);
}

/* The list of ``[(topic, partition, offset), …]``, which the caller owns. The tuple keeps what is read of it alive, also
 * where a number's __index__ changes the list. */
static List *list_of(PyObject *wanted) {
    if (!PyList_Check(wanted)) {
        PyErr_SetString(PyExc_TypeError, "a list of (topic, partition, offset) is needed");
        return NULL;
    }
    PyObject *items = PyList_AsTuple(wanted);
    if (items == NULL) return NULL;
    Py_ssize_t count = PyTuple_Size(items);
    List *list = rk.topic_partition_list_new(0);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = PyTuple_GetItem(items, i);
        const char *topic;
        int partition;
        long long offset;
        if (!PyTuple_Check(item)) PyErr_SetString(PyExc_TypeError, "an item is no (topic, partition, offset)");
        if (PyTuple_Check(item) && PyArg_ParseTuple(item, "siL", &topic, &partition, &offset))
            rk.topic_partition_list_add(list, topic, partition)->offset = offset;
        else {
            rk.topic_partition_list_destroy(list);
            list = NULL;
        }
    }
    Py_DECREF(items);
    return list;
}

/* assign(list): read these partitions from these offsets, and no others. */
static PyObject *reader_assign(PyObject *me, PyObject *wanted) {
    int code = 0;
    List *list = list_of(wanted);
    if (list == NULL) return NULL;
    Handle *handle = enter((Reader *)me);
    if (handle != NULL) {
        Py_BEGIN_ALLOW_THREADS;
        code = rk.assign(handle->kafka, list);
        Py_END_ALLOW_THREADS;
        leave(handle);
    }
    rk.topic_partition_list_destroy(list);
    if (handle == NULL) return NULL;
    if (code) return fail(code, rk.err2str(code));
    Py_RETURN_NONE;
}

static PyObject *change_assignment(PyObject *me, PyObject *wanted, Failure *(*change)(Kafka *, const List *)) {
    Failure *failure = NULL;
    List *list = list_of(wanted);
    if (list == NULL) return NULL;
    Handle *handle = enter((Reader *)me);
    if (handle != NULL) {
        Py_BEGIN_ALLOW_THREADS;
        failure = change(handle->kafka, list);
        Py_END_ALLOW_THREADS;
        leave(handle);
    }
    rk.topic_partition_list_destroy(list);
    if (handle == NULL) return NULL;
    if (failure != NULL) {
        int code = rk.error_code(failure);
        rk.error_destroy(failure);
        return fail(code, rk.err2str(code));
    }
    Py_RETURN_NONE;
}

/* add(list): read these partitions, too. */
static PyObject *reader_add(PyObject *me, PyObject *wanted) {
    return change_assignment(me, wanted, rk.incremental_assign);
}

/* drop(list): read these partitions no more; their offsets do not matter. */
static PyObject *reader_drop(PyObject *me, PyObject *wanted) {
    return change_assignment(me, wanted, rk.incremental_unassign);
}

/* A time-out in milliseconds; -1, with an exception, where it is none. */
static int milliseconds(double seconds) {
    if (seconds >= 0 && seconds < 1e6) return (int)(seconds * 1000);
    PyErr_SetString(PyExc_ValueError, "a time-out has 0 to 1000000 seconds");
    return -1;
}

/* watermarks(topic, partition, seconds): where the log starts and ends, as its leader says. */
static PyObject *reader_watermarks(PyObject *me, PyObject *arguments) {
    const char *topic;
    int partition, code, wait_ms;
    double timeout;
    int64_t low = 0, high = 0;
    if (!PyArg_ParseTuple(arguments, "sid", &topic, &partition, &timeout)) return NULL;
    if ((wait_ms = milliseconds(timeout)) < 0) return NULL;
    Handle *handle = enter((Reader *)me);
    if (handle == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = rk.query_watermark_offsets(handle->kafka, topic, partition, &low, &high, wait_ms);
    Py_END_ALLOW_THREADS;
    leave(handle);
    if (code) return fail(code, rk.err2str(code));
    return Py_BuildValue("(LL)", (long long)low, (long long)high);
}

/* ---------------------------------------------------------------- headers */

/* Takes one header; 0: no memory. ``number`` counts them. */
typedef int TakeHeader(void *to, size_t number, const char *name, size_t length, const void *value, size_t size);

/* Gives each header to ``take``. Where a name is no UTF-8, all of them are unreadable, and U+FFFD without a value stands
 * for them: ``*is_unreadable``, if asked for. Returns how many were given; -1: no memory. */
static int each_header(const Message *message, TakeHeader *take, void *to, int *is_unreadable) {
    Headers *headers;
    const char *name;
    const void *value;
    size_t size, count = 0;
    if (is_unreadable) *is_unreadable = 0;
    if (rk.message_headers(message, &headers)) return 0;
    for (size_t i = 0; rk.header_get_all(headers, i, &name, &value, &size) == 0; i++)
        if (!is_utf8((const unsigned char *)name, strlen(name))) {
            if (is_unreadable) *is_unreadable = 1;
            return take(to, 0, "\xEF\xBF\xBD", 3, NULL, 0) ? 1 : -1;
        }
    for (; rk.header_get_all(headers, count, &name, &value, &size) == 0; count++)
        if (!take(to, count, name, strlen(name), value, size)) return -1;
    return (int)count;
}

enum { HEADER_OVERHEAD = 64 /* of librdkafka, for each header */, MAX_UNPACKED = 64 << 10 };

/* What librdkafka keeps for a message's headers: as they came, and unpacked. Those that are large are unpacked no more
 * then, if ``may_free``: librdkafka does it again when they are asked for. */
static int64_t header_bytes(Message *message, int may_free) {
    Headers *headers;
    const char *name;
    const void *value;
    size_t size;
    int64_t sum = 0;
    if (rk.message_headers(message, &headers)) return 0;
    for (size_t i = 0; rk.header_get_all(headers, i, &name, &value, &size) == 0; i++)
        sum += (int64_t)(2 * (strlen(name) + size)) + HEADER_OVERHEAD;
    if (may_free && sum > MAX_UNPACKED && rk.message_detach_headers(message, &headers) == 0) rk.headers_destroy(headers);
    return sum;
}

/* ---------------------------------------------------------------- consuming */

enum { MESSAGE_OVERHEAD = 192, MAX_GAP = 64, WAIT_MS = 50, NAP_NS = 2000000, MIN_NAP = 64 };

/* Whether a message may have headers that are worth counting. To ask librdkafka takes 150 ns, also where there are none.
 * In a log, a message's headers lie between its value and the next message: where that begins soon behind the value, they
 * are small, and MESSAGE_OVERHEAD covers them. Only addresses are compared; whatever lies elsewhere is asked for. */
static int may_have_headers(const Message *message, const Message *next) {
    if (next == NULL || next->err || message->payload == NULL) return 1;
    uintptr_t end = (uintptr_t)message->payload + message->len, start = (uintptr_t)(next->key ? next->key : next->payload);
    return start < end || start - end > MAX_GAP;
}

/* Takes what is queued, to ``room`` messages and, about, ``max_bytes``; waits at most ``wait_ms`` for the first. Short
 * batches cost many wake-ups: where messages flow, a nap lets more come. Runs without the interpreter's lock. */
static void gather(Handle *handle, Batch *batch, Py_ssize_t room, int64_t max_bytes, int wait_ms) {
    int64_t bytes = 0;
    int may_nap = 1;
    while (batch->count < room && (bytes < max_bytes || batch->count == 0)) {
        double fits = (double)(max_bytes - bytes) / handle->mean;
        Py_ssize_t wanted = room - batch->count;
        if (fits < (double)wanted) wanted = fits < 1 ? 1 : (Py_ssize_t)fits;
        ssize_t got = rk.consume_batch_queue(handle->queue, 0, batch->messages + batch->count, (size_t)wanted);
        if (got <= 0 && batch->count == 0 && wait_ms > 0) {
            got = rk.consume_batch_queue(handle->queue, wait_ms, batch->messages, 1);
            wanted = 1;
            wait_ms = 0;
        }
        int64_t before = bytes;
        Py_ssize_t messages = 0;
        for (ssize_t i = 0; i < got; i++) {
            Message *message = batch->messages[batch->count + i];
            if (message->err) continue;
            const Message *next = i + 1 < got ? batch->messages[batch->count + i + 1] : NULL;
            int64_t beside = may_have_headers(message, next) ? header_bytes(message, 1) : 0;
            batch->value_bytes += (int64_t)message->len;
            batch->key_bytes += (int64_t)message->key_len;
            batch->header_bytes += beside;
            bytes += (int64_t)(message->len + message->key_len) + beside + MESSAGE_OVERHEAD;
            messages++;
        }
        if (messages > 0) {
            double mean = (double)(bytes - before) / (double)messages, slow = handle->mean * 0.8 + mean * 0.2;
            handle->mean = mean > slow ? mean : slow;
        }
        if (got > 0) batch->count += got;
        if (got >= wanted) continue;
        if (!may_nap || batch->count < MIN_NAP || batch->count >= room / 4) return;
        const struct timespec nap = {0, NAP_NS};
        nanosleep(&nap, NULL);
        may_nap = 0;
    }
}

/* Appends to a list; 0 where that fails. Takes the reference to ``item``, which may be NULL after a failure. */
static int append(PyObject *list, PyObject *item) {
    int is_done = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return is_done;
}

static PyObject *event_of(const Message *message) {
    const char *text = rk.message_errstr(message);
    PyObject *reason = decoded(text ? text : rk.err2str(message->err));
    if (reason == NULL) return NULL;
    return Py_BuildValue(
        "(ziLiN)", message->rkt ? rk.topic_name(message->rkt) : NULL, (int)message->partition,
        (long long)message->offset, message->err, reason);
}

static PyObject *run_of(const Batch *batch, Py_ssize_t start, Py_ssize_t stop) {
    const Message *first = batch->messages[start], *last = batch->messages[stop - 1];
    return Py_BuildValue(
        "(sinnLL)", rk.topic_name(first->rkt), (int)first->partition, start, stop, (long long)first->offset,
        (long long)last->offset + 1);
}

static int is_same_partition(const Message *one, const Message *other) {
    return one->partition == other->partition && one->rkt == other->rkt;
}

/* Frees the events among the messages, which become Python objects, and lists the runs; 0 where that fails. What is left
 * in the batch is a message each, in any case. */
static int sort_out(Batch *batch) {
    Py_ssize_t kept = 0, count = batch->count, start = 0;
    int is_done = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        Message *message = batch->messages[i];
        if (message->err) {
            is_done = is_done && append(batch->events, event_of(message));
            rk.message_destroy(message);
        } else
            batch->messages[kept++] = message;
    }
    batch->count = kept;
    for (Py_ssize_t i = 1; is_done && i <= kept; i++)
        if (i == kept || !is_same_partition(batch->messages[i], batch->messages[start])) {
            is_done = append(batch->runs, run_of(batch, start, i));
            start = i;
        }
    return is_done;
}

/* consume(max_messages, max_bytes, seconds): waits for the first message, then takes what is there. Signals are heeded
 * while it waits; with messages in hand it returns them. */
static PyObject *reader_consume(PyObject *me, PyObject *arguments) {
    Py_ssize_t room;
    long long max_bytes;
    double timeout;
    if (!PyArg_ParseTuple(arguments, "nLd", &room, &max_bytes, &timeout)) return NULL;
    int left = milliseconds(timeout);
    if (left < 0) return NULL;
    if (room < 1 || room > 1 << 20 || max_bytes < 1) {
        PyErr_SetString(PyExc_ValueError, "consume() needs 1 to 1048576 messages, and 1 byte or more");
        return NULL;
    }
    Handle *handle = enter((Reader *)me);
    if (handle == NULL) return NULL;
    Batch *batch = (Batch *)PyType_GenericAlloc(BatchType, 0);
    if (batch == NULL) {
        leave(handle);
        return NULL;
    }
    handle->users++; /* the batch's; from here on its dealloc undoes all */
    batch->handle = handle;
    pthread_mutex_init(&batch->lock, NULL);
    batch->runs = PyList_New(0);
    batch->events = PyList_New(0);
    batch->messages = malloc(sizeof(Message *) * (size_t)room);
    int is_done = batch->runs != NULL && batch->events != NULL && batch->messages != NULL;
    if (batch->messages == NULL) PyErr_NoMemory();
    while (is_done) {
        int slice = left < WAIT_MS ? left : WAIT_MS;
        Py_BEGIN_ALLOW_THREADS;
        gather(handle, batch, room, max_bytes, slice);
        Py_END_ALLOW_THREADS;
        left -= slice;
        if (batch->count > 0 || left <= 0 || handle->is_closing) break;
        is_done = PyErr_CheckSignals() == 0;
    }
    is_done = is_done && sort_out(batch);
    leave(handle);
    if (is_done) return (PyObject *)batch;
    Py_DECREF(batch);
    return NULL;
}

/* notes(): [(is_error, code or level, facility, text), …] of what was logged since this was asked. */
static PyObject *reader_notes(PyObject *me, PyObject *nothing) {
    PyObject *list = PyList_New(0);
    Handle *handle = list ? enter((Reader *)me) : NULL;
    if (handle == NULL) {
        Py_XDECREF(list);
        return NULL;
    }
    Note *notes = take_notes(handle);
    leave(handle);
    for (const Note *note = notes; list != NULL && note != NULL; note = note->next) {
        PyObject *text = decoded(note->text);
        PyObject *item = text ? Py_BuildValue("(iisN)", note->is_error, note->code, note->facility, text) : NULL;
        if (!append(list, item)) Py_CLEAR(list);
    }
    free_notes(notes);
    return list;
}

/* wake(fd): writes a byte to ``fd`` whenever something comes and nothing was there. The descriptor has to stay open for
 * as long as the reader; -1 ends it. */
static PyObject *reader_wake(PyObject *me, PyObject *argument) {
    int descriptor;
    if (!PyArg_Parse(argument, "i", &descriptor)) return NULL;
    Handle *handle = enter((Reader *)me);
    if (handle == NULL) return NULL;
    rk.queue_io_event_enable(handle->queue, descriptor, "1", 1);
    leave(handle);
    Py_RETURN_NONE;
}

static PyMethodDef reader_methods[] = {
    {"assign", reader_assign, METH_O, NULL},
    {"add", reader_add, METH_O, NULL},
    {"drop", reader_drop, METH_O, NULL},
    {"watermarks", reader_watermarks, METH_VARARGS, NULL},
    {"consume", reader_consume, METH_VARARGS, NULL},
    {"wake", reader_wake, METH_O, NULL},
    {"notes", reader_notes, METH_NOARGS, NULL},
    {"close", reader_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot reader_slots[] = {
    {Py_tp_new, reader_new}, {Py_tp_dealloc, reader_dealloc}, {Py_tp_methods, reader_methods}, {0, NULL}};
static PyType_Spec reader_spec = {
    "zkgroup.clients.kafka._native.Reader", sizeof(Reader), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    reader_slots};

/* ---------------------------------------------------------------- batches */

/* Frees the messages, unless a call works on them: its end frees them then. */
static void free_messages(Batch *self) {
    Handle *handle = self->handle;
    if (handle == NULL || self->calls > 0) return;
    self->handle = NULL;
    if (is_forked(handle)) return; /* locks of librdkafka may have been held by threads that are not here */
    for (Py_ssize_t i = self->gone; i < self->count; i++) rk.message_destroy(self->messages[i]);
    free(self->messages);
    self->messages = NULL;
    handle->users--;
    settle(handle);
}

static void batch_dealloc(PyObject *me) {
    Batch *self = (Batch *)me;
    free_messages(self);
    pthread_mutex_destroy(&self->lock);
    Py_XDECREF(self->runs);
    Py_XDECREF(self->events);
    free_instance(me);
}

/* release(): frees the messages now. */
static PyObject *batch_release(PyObject *me, PyObject *nothing) {
    Batch *self = (Batch *)me;
    self->is_released = 1;
    free_messages(self);
    Py_RETURN_NONE;
}

/* release_first(count): frees the first ``count`` messages now, unless a call works on the batch. */
static PyObject *batch_release_first(PyObject *me, PyObject *argument) {
    Batch *self = (Batch *)me;
    Py_ssize_t count = PyLong_AsSsize_t(argument);
    if (count == -1 && PyErr_Occurred()) return NULL;
    if (self->handle == NULL || self->calls > 0 || is_forked(self->handle)) Py_RETURN_NONE;
    while (self->gone < count && self->gone < self->count) rk.message_destroy(self->messages[self->gone++]);
    Py_RETURN_NONE;
}

/* A call on messages ``start`` to ``stop`` begins, until unpin(); 0, with an exception, where they are not there. */
static int pin(Batch *self, Py_ssize_t start, Py_ssize_t stop) {
    const char *problem = NULL;
    int is_gone = self->handle == NULL || self->is_released || (start >= 0 && start < self->gone);
    if (is_gone) problem = "the batch was released";
    else if (is_forked(self->handle)) problem = "the batch was made by another process";
    else if (start < 0 || start > stop || stop > self->count) problem = "the batch has no such messages";
    if (problem != NULL) {
        PyErr_SetString(PyExc_ValueError, problem);
        return 0;
    }
    self->calls++;
    return 1;
}

static void unpin(Batch *self) {
    self->calls--;
    if (self->is_released) free_messages(self);
}

/* reorder(start, places): message ``start + i`` becomes the one that was ``start + places[i]``. Runs stay as they were. */
static PyObject *batch_reorder(PyObject *me, PyObject *arguments) {
    Batch *self = (Batch *)me;
    Py_ssize_t start;
    PyObject *places;
    if (!PyArg_ParseTuple(arguments, "nO!", &start, &PyList_Type, &places)) return NULL;
    Py_ssize_t count = PyList_Size(places);
    if (!pin(self, start, start > self->count ? start : start + count)) return NULL;
    size_t size = sizeof(Message *) * (size_t)count;
    Message **before = malloc(size + 1), **after = malloc(size + 1);
    int is_enough = before != NULL && after != NULL, is_order = is_enough && self->calls == 1;
    if (is_order && count) memcpy(before, self->messages + start, size);
    for (Py_ssize_t i = 0; is_order && i < count; i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyList_GetItem(places, i));
        is_order = place >= 0 && place < count && before[place] != NULL;
        if (!is_order) break;
        after[i] = before[place];
        before[place] = NULL;
    }
    if (is_order && count) memcpy(self->messages + start, after, size);
    free(before);
    free(after);
    unpin(self);
    if (is_order) Py_RETURN_NONE;
    if (!is_enough) return PyErr_NoMemory();
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "each place is needed once, and no other call");
    return NULL;
}

/* A block of the text, or MemoryError; the text is freed or given away. */
static PyObject *finished(Text *text, int is_enough) {
    if (is_enough) return block_of_text(text);
    free(text->data);
    return PyErr_NoMemory();
}

/* values(start, stop): the values, one a line; a null value is an empty line. */
static PyObject *batch_values(PyObject *me, PyObject *arguments) {
    Batch *self = (Batch *)me;
    Py_ssize_t start, stop;
    Text text = {0};
    int is_enough;
    if (!PyArg_ParseTuple(arguments, "nn", &start, &stop) || !pin(self, start, stop)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    size_t size = 0;
    for (Py_ssize_t i = start; i < stop; i++) size += self->messages[i]->len + 1;
    is_enough = reserve(&text, size);
    for (Py_ssize_t i = start; is_enough && i < stop; i++) {
        put(&text, self->messages[i]->payload, self->messages[i]->len);
        text.data[text.used++] = '\n';
    }
    Py_END_ALLOW_THREADS;
    unpin(self);
    return finished(&text, is_enough);
}

/* One part of a format: fixed bytes (letter 0), which the caller's tuple owns, or what a letter of kcat's stands for. */
typedef struct {
    char letter;
    char *bytes;
    Py_ssize_t length;
} Part;

static int print_header(void *to, size_t number, const char *name, size_t length, const void *value, size_t size) {
    Text *text = to;
    if (!reserve(text, length + size + 8)) return 0;
    if (number) put(text, ",", 1);
    put(text, name, length);
    put(text, "=", 1);
    if (value == NULL)
        put(text, "NULL", 4);
    else
        put(text, value, size);
    return 1;
}

/* Puts one part of a message; makes its own room. 0: no memory. */
static int put_part(Text *text, const Part *part, const Message *message, const char *topic, size_t topic_length) {
    size_t most = part->letter == 0 ? (size_t)part->length : DIGITS;
    if (part->letter == 's') most = message->len;
    if (part->letter == 'k') most = message->key_len;
    if (part->letter == 't') most = topic_length;
    if (!reserve(text, most)) return 0;
    int kind;
    int64_t millis;
    uint32_t length;
    switch (part->letter) {
    case 0: put(text, part->bytes, (size_t)part->length); break;
    case 's': put(text, message->payload, message->len); break;
    case 'k': put(text, message->key, message->key_len); break;
    case 't': put(text, topic, topic_length); break;
    case 'p': put_number(text, message->partition); break;
    case 'o': put_number(text, message->offset); break;
    case 'S': put_number(text, message->payload ? (int64_t)message->len : -1); break;
    case 'K': put_number(text, message->key ? (int64_t)message->key_len : -1); break;
    case 'R':
        length = message->payload ? (uint32_t)message->len : UINT32_MAX;
        for (int shift = 24; shift >= 0; shift -= 8) text->data[text->used++] = (char)(length >> shift);
        break;
    case 'T':
        millis = rk.message_timestamp(message, &kind);
        put_number(text, kind == NO_TIMESTAMP ? -1 : millis);
        break;
    case 'h': return each_header(message, print_header, text, NULL) >= 0;
    }
    return 1;
}

/* The parts of a format, which the caller frees; NULL, with an exception, where it is none. */
static Part *parts_of(PyObject *format, Py_ssize_t *count) {
    *count = PyTuple_Size(format);
    Part *parts = calloc((size_t)*count + 1, sizeof(Part));
    if (parts == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; parts != NULL && i < *count; i++) {
        PyObject *part = PyTuple_GetItem(format, i);
        int is_known = 1;
        if (PyBytes_Check(part))
            is_known = PyBytes_AsStringAndSize(part, &parts[i].bytes, &parts[i].length) == 0;
        else {
            Py_ssize_t length = 0;
            const char *letter = PyUnicode_AsUTF8AndSize(part, &length);
            is_known = letter != NULL && length == 1 && letter[0] != 0 && strchr("skSKtpoRTh", letter[0]) != NULL;
            if (is_known) parts[i].letter = letter[0];
            else if (letter != NULL) PyErr_Format(PyExc_ValueError, "a format has no %%%s", letter);
        }
        if (!is_known) {
            free(parts);
            parts = NULL;
        }
    }
    return parts;
}

/* format((b"fixed" or "letter", …), start, stop) */
static PyObject *batch_format(PyObject *me, PyObject *arguments) {
    Batch *self = (Batch *)me;
    PyObject *format;
    Py_ssize_t start, stop, count;
    Text text = {0};
    int is_enough = 1;
    if (!PyArg_ParseTuple(arguments, "O!nn", &PyTuple_Type, &format, &start, &stop)) return NULL;
    Part *parts = parts_of(format, &count);
    if (parts == NULL || !pin(self, start, stop)) {
        free(parts);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&self->lock);
    const Topic *topic = NULL;
    const char *name = "";
    size_t length = 0;
    for (Py_ssize_t i = start; is_enough && i < stop; i++) {
        const Message *message = self->messages[i];
        if (message->rkt != topic) {
            topic = message->rkt;
            name = rk.topic_name(topic);
            length = strlen(name);
        }
        for (Py_ssize_t part = 0; is_enough && part < count; part++)
            is_enough = put_part(&text, parts + part, message, name, length);
    }
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    unpin(self);
    free(parts);
    return finished(&text, is_enough);
}

/* ---------------------------------------------------------------- batches as JSON */

static const int64_t FIRST_SECOND = INT64_C(-62135596800), LAST_SECOND = INT64_C(253402300799); /* of years 1 to 9999 */

/* Writes ``"2026-11-26T05:00:00`` to ``clock``, which has the room; its length, 0 for what Python's calendar has not. */
static size_t write_second(int64_t second, char *clock) {
    if (second < FIRST_SECOND || second > LAST_SECOND) return 0;
    int64_t days = second / 86400, rest = second % 86400;
    if (rest < 0) rest += 86400, days--;
    /* Howard Hinnant's civil_from_days */
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
    unsigned doe = (unsigned)(z - era * 146097);
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    unsigned day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9;
    unsigned year = (unsigned)(yoe + era * 400) + (month <= 2);
    const unsigned parts[] = {year / 100, year % 100, month, day, (unsigned)rest / 3600, (unsigned)rest / 60 % 60,
                              (unsigned)rest % 60};
    static const char before[] = "\"\0--T::";
    size_t length = 0;
    for (int i = 0; i < 7; i++) {
        if (before[i]) clock[length++] = before[i];
        memcpy(clock + length, PAIRS + parts[i] * 2, 2);
        length += 2;
    }
    return length;
}

static int json_header(void *to, size_t number, const char *name, size_t length, const void *value, size_t size) {
    Text *text = to;
    if (!reserve(text, 6 * length + 64)) return 0;
    if (number) put(text, ",", 1);
    put_text(text, "{\"key\":");
    put_string(text, (const unsigned char *)name, length);
    put_text(text, ",\"value\":");
    if (!put_content(text, value, size) || !reserve(text, 1)) return 0;
    put(text, "}", 1);
    return 1;
}

/* A second, and how it is written: messages often have the same. */
typedef struct {
    int64_t second;
    size_t length;
    char text[32];
} Clock;

/* Puts a message's timestamp and its type. Room: 128. */
static void put_time(Text *text, const Message *message, Clock *clock) {
    int kind;
    int64_t millis = rk.message_timestamp(message, &kind), second = millis / 1000, rest = millis % 1000;
    if (millis == -1) kind = NO_TIMESTAMP; /* Kafka's own word for none */
    if (rest < 0) rest += 1000, second--;
    if (kind != NO_TIMESTAMP && second != clock->second) {
        clock->second = second;
        clock->length = write_second(second, clock->text);
    }
    if (kind == NO_TIMESTAMP)
        put_text(text, "null");
    else if (clock->length == 0) {
        put_text(text, "null,\"timestamp_raw\":");
        put_number(text, millis);
    } else {
        const char *pair = PAIRS + rest % 100 * 2;
        const char end[] = {'.', (char)('0' + rest / 100), pair[0], pair[1], 'Z', '"'};
        put(text, clock->text, clock->length);
        put(text, end, sizeof end);
    }
    put_text(text, ",\"timestamp_type\":");
    put_text(text, kind == CREATE_TIME ? "\"CreateTime\"" : kind == LOG_APPEND_TIME ? "\"LogAppendTime\"" : "null");
}

/* Puts a message; ``prefix`` is what comes before its offset. 0: no memory. */
static int put_json(Text *text, const Message *message, const Text *prefix, Clock *clock) {
    if (!reserve(text, prefix->used + 256)) return 0;
    put(text, prefix->data, prefix->used);
    put_number(text, message->offset);
    put_text(text, ",\"timestamp\":");
    put_time(text, message, clock);
    put_text(text, ",\"key\":");
    if (!put_content(text, message->key, message->key_len) || !reserve(text, 16)) return 0;
    put_text(text, ",\"value\":");
    if (!put_content(text, message->payload, message->len) || !reserve(text, 16)) return 0;
    put_text(text, ",\"headers\":[");
    if (each_header(message, json_header, text, NULL) < 0 || !reserve(text, 8)) return 0;
    put_text(text, "]}\n");
    return 1;
}

/* What all messages of a partition begin with; 0: no memory. */
static int write_prefix(Text *prefix, const Message *message) {
    const char *topic = rk.topic_name(message->rkt);
    prefix->used = 0;
    if (!reserve(prefix, 6 * strlen(topic) + 128)) return 0;
    put_text(prefix, "{\"topic\":");
    put_string(prefix, (const unsigned char *)topic, strlen(topic));
    put_text(prefix, ",\"partition\":");
    put_number(prefix, message->partition);
    put_text(prefix, ",\"offset\":");
    return 1;
}

/* json(start, stop): an object a line. */
static PyObject *batch_json(PyObject *me, PyObject *arguments) {
    Batch *self = (Batch *)me;
    Py_ssize_t start, stop;
    Text text = {0}, prefix = {0};
    Clock clock = {INT64_MIN, 0, {0}};
    int is_enough = 1;
    if (!PyArg_ParseTuple(arguments, "nn", &start, &stop) || !pin(self, start, stop)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&self->lock);
    for (Py_ssize_t i = start; is_enough && i < stop; i++) {
        const Message *message = self->messages[i];
        if (i == start || !is_same_partition(message, self->messages[i - 1])) is_enough = write_prefix(&prefix, message);
        is_enough = is_enough && put_json(&text, message, &prefix, &clock);
    }
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    unpin(self);
    free(prefix.data);
    return finished(&text, is_enough);
}

/* ---------------------------------------------------------------- batches as Arrow buffers */

/* Which rows of a column are not null; one bit each. ``valid`` is owned. */
typedef struct {
    unsigned char *valid;
    size_t count, nulls;
} Validity;

/* A column of numbers of ``width`` bytes. */
typedef struct {
    Validity validity;
    char *data; /* owned */
    size_t width;
} Numbers;

/* A column of bytes: row i lies in ``data`` from ends[i] to ends[i + 1]. All is owned. */
typedef struct {
    Validity validity;
    int32_t *ends;
    size_t room;
    Text data;
} Strings;

static inline void add_validity(Validity *to, int is_valid) {
    unsigned char bit = (unsigned char)(1u << (to->count & 7)), *byte = to->valid + to->count / 8;
    *byte = (unsigned char)((to->count & 7 ? *byte : 0) | (is_valid ? bit : 0));
    to->nulls += !is_valid;
    to->count++;
}

/* Room for ``count`` rows; 0: no memory. */
static int make_numbers(Numbers *numbers, size_t width, size_t count) {
    numbers->width = width;
    numbers->data = malloc(width * count + 1);
    numbers->validity.valid = malloc(count / 8 + 1);
    return numbers->data != NULL && numbers->validity.valid != NULL;
}

static inline void add_number(Numbers *to, int64_t number, int is_valid) {
    if (!is_valid) number = 0;
    char *place = to->data + to->width * to->validity.count;
    if (to->width == 8)
        memcpy(place, &number, 8);
    else
        *place = (char)number;
    add_validity(&to->validity, is_valid);
}

static int grow_strings(Strings *to, size_t room) {
    int32_t *ends = realloc(to->ends, sizeof(int32_t) * (room + 1));
    if (ends != NULL) to->ends = ends;
    unsigned char *valid = realloc(to->validity.valid, room / 8 + 1);
    if (valid != NULL) to->validity.valid = valid;
    if (ends == NULL || valid == NULL) return 0;
    to->room = room;
    if (to->validity.count == 0) to->ends[0] = 0;
    return 1;
}

/* 0: no memory, or more than an Arrow column of this kind holds. */
static inline int add_string(Strings *to, const void *bytes, size_t size) {
    size_t count = to->validity.count;
    if (count == to->room && !grow_strings(to, to->room < 64 ? 64 : 2 * to->room)) return 0;
    if (size > INT32_MAX || to->data.used + size > INT32_MAX || !reserve(&to->data, size)) return 0;
    put(&to->data, bytes, size);
    add_validity(&to->validity, bytes != NULL);
    to->ends[count + 1] = (int32_t)to->data.used;
    return 1;
}

/* (nulls, valid or None): gives the bits away. */
static PyObject *validity_block(Validity *from) {
    if (from->nulls == 0) Py_RETURN_NONE;
    PyObject *block = block_of(from->valid, (from->count + 7) / 8);
    from->valid = NULL;
    return block;
}

/* (nulls, valid or None, data): gives the buffers away. NULL, with an exception, where that fails. */
static PyObject *numbers_column(Numbers *from) {
    Py_ssize_t nulls = (Py_ssize_t)from->validity.nulls;
    PyObject *valid = validity_block(&from->validity);
    PyObject *data = block_of(from->data, from->width * from->validity.count);
    from->data = NULL;
    return Py_BuildValue("(nNN)", nulls, valid, data); /* NULL, and all freed, where one is */
}

/* (nulls, valid or None, ends, data): gives the buffers away. NULL, with an exception, where that fails. */
static PyObject *strings_column(Strings *from) {
    Py_ssize_t nulls = (Py_ssize_t)from->validity.nulls;
    PyObject *valid = validity_block(&from->validity);
    PyObject *ends = block_of(from->ends, sizeof(int32_t) * (from->validity.count + 1));
    from->ends = NULL;
    PyObject *data = block_of_text(&from->data);
    return Py_BuildValue("(nNNN)", nulls, valid, ends, data);
}

static void free_numbers(Numbers *numbers) {
    free(numbers->validity.valid);
    free(numbers->data);
}

static void free_strings(Strings *strings) {
    free(strings->validity.valid);
    free(strings->ends);
    free(strings->data.data);
}

/* All columns of a batch. ``heads``: where each message's headers end among ``names`` and ``contents``. Times from
 * ``end_of_time`` on are in no calendar. */
typedef struct {
    int64_t end_of_time;
    Numbers offsets, times, types, raw_times;
    Strings keys, raw_keys, values, raw_values, heads, names, contents;
    Py_ssize_t undecodable;
} Columns;

static int column_header(void *to, size_t number, const char *name, size_t length, const void *value, size_t size) {
    Columns *columns = to;
    return add_string(&columns->names, name, length) && add_string(&columns->contents, value, size);
}

/* Adds a key or a value where it is what it has to be ('t': text, 'j': JSON, 'b': any bytes), to ``raw`` where it is
 * not. 0: no memory. */
static int add_content(Strings *to, Strings *raw, char format, const void *bytes, size_t size, int *is_bad) {
    if (format == 'b') return add_string(to, bytes, size);
    int is_right = bytes == NULL || (format == 'j' ? is_json(bytes, size) : is_utf8(bytes, size));
    *is_bad |= !is_right;
    if (is_right) return add_string(to, bytes, size) && add_string(raw, NULL, 0);
    return add_string(to, NULL, 0) && add_string(raw, bytes, size);
}

static void add_time(Columns *to, const Message *message) {
    int kind;
    int64_t millis = rk.message_timestamp(message, &kind);
    int is_known = kind > NO_TIMESTAMP && millis != -1, is_time = is_known && millis >= 0 && millis < to->end_of_time;
    add_number(&to->times, millis, is_time);
    add_number(&to->types, kind, is_known);
    add_number(&to->raw_times, millis, is_known && !is_time);
}

static int add_message(Columns *to, const Message *message, char key, char value) {
    int is_bad = 0, is_unreadable = 0;
    add_number(&to->offsets, message->offset, 1);
    add_time(to, message);
    if (!add_content(&to->keys, &to->raw_keys, key, message->key, message->key_len, &is_bad)) return 0;
    if (!add_content(&to->values, &to->raw_values, value, message->payload, message->len, &is_bad)) return 0;
    int found = each_header(message, column_header, to, &is_unreadable);
    if (found < 0 || !add_string(&to->heads, found ? "" : NULL, 0)) return 0;
    to->heads.ends[to->heads.validity.count] = (int32_t)to->names.validity.count;
    to->undecodable += is_bad || is_unreadable;
    return 1;
}

static int make_columns(Columns *to, Message **messages, size_t count) {
    size_t keys = 0, values = 0;
    for (size_t i = 0; i < count; i++) {
        keys += messages[i]->key_len;
        values += messages[i]->len;
    }
    return make_numbers(&to->offsets, 8, count) && make_numbers(&to->times, 8, count) &&
           make_numbers(&to->types, 1, count) && make_numbers(&to->raw_times, 8, count) &&
           grow_strings(&to->keys, count) && grow_strings(&to->raw_keys, count) && grow_strings(&to->values, count) &&
           grow_strings(&to->raw_values, count) && grow_strings(&to->heads, count) && grow_strings(&to->names, 0) &&
           grow_strings(&to->contents, 0) && reserve(&to->keys.data, keys) && reserve(&to->values.data, values);
}

/* columns(start, stop, key, value, end of time): ``key`` and ``value`` are "b" (bytes), "t" (text) or "j" (JSON). Returns
 * (offsets, times, types, raw times, keys, raw keys, values, raw values, headers, undecodable): numbers are
 * (nulls, valid, data), the others (nulls, valid, ends, data); ``valid`` is None where nothing is null. Headers are
 * None where there are none, else (nulls, valid, ends, count of pairs, names, values). */
static PyObject *batch_columns(PyObject *me, PyObject *arguments) {
    Batch *self = (Batch *)me;
    Py_ssize_t start, stop;
    const char *key, *value;
    long long end_of_time;
    Columns columns = {0};
    int is_enough;
    if (!PyArg_ParseTuple(arguments, "nnssL", &start, &stop, &key, &value, &end_of_time)) return NULL;
    if (strlen(key) != 1 || strlen(value) != 1 || !strchr("btj", *key) || !strchr("btj", *value)) {
        PyErr_SetString(PyExc_ValueError, "a column is b, t or j");
        return NULL;
    }
    if (!pin(self, start, stop)) return NULL;
    columns.end_of_time = end_of_time;
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&self->lock);
    is_enough = make_columns(&columns, self->messages + start, (size_t)(stop - start));
    for (Py_ssize_t i = start; is_enough && i < stop; i++)
        is_enough = add_message(&columns, self->messages[i], *key, *value);
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    unpin(self);
    PyObject *answer = NULL;
    if (!is_enough)
        PyErr_NoMemory();
    else {
        PyObject *offsets = numbers_column(&columns.offsets), *times = numbers_column(&columns.times);
        PyObject *types = numbers_column(&columns.types), *raw_times = numbers_column(&columns.raw_times);
        PyObject *keys = strings_column(&columns.keys), *raw_keys = strings_column(&columns.raw_keys);
        PyObject *values = strings_column(&columns.values), *raw_values = strings_column(&columns.raw_values);
        PyObject *headers = Py_None;
        Py_ssize_t pairs = (Py_ssize_t)columns.names.validity.count;
        if (pairs == 0)
            Py_INCREF(headers);
        else {
            Py_ssize_t nulls = (Py_ssize_t)columns.heads.validity.nulls;
            PyObject *valid = validity_block(&columns.heads.validity);
            PyObject *ends = block_of(columns.heads.ends, sizeof(int32_t) * (columns.heads.validity.count + 1));
            columns.heads.ends = NULL;
            PyObject *names = strings_column(&columns.names), *contents = strings_column(&columns.contents);
            headers = Py_BuildValue("(nNNnNN)", nulls, valid, ends, pairs, names, contents);
        }
        answer = Py_BuildValue(
            "(NNNNNNNNNn)", offsets, times, types, raw_times, keys, raw_keys, values, raw_values, headers,
            columns.undecodable);
    }
    free_numbers(&columns.offsets);
    free_numbers(&columns.times);
    free_numbers(&columns.types);
    free_numbers(&columns.raw_times);
    free_strings(&columns.keys);
    free_strings(&columns.raw_keys);
    free_strings(&columns.values);
    free_strings(&columns.raw_values);
    free_strings(&columns.heads);
    free_strings(&columns.names);
    free_strings(&columns.contents);
    return answer;
}

/* A number of each message; ``limit`` is the end of time, or a Counted. */
enum Counted { NO_HEADERS, HEADERS, HEADERS_IN_USE /* another call may have them in hand: they are not freed */ };
typedef int64_t NumberOf(Message *message, int64_t limit);

static int64_t offset_of(Message *message, int64_t limit) { return message->offset; }
static int64_t size_of(Message *message, int64_t counted) {
    int64_t headers = counted == NO_HEADERS ? 0 : header_bytes(message, counted == HEADERS);
    return (int64_t)(message->len + message->key_len) + headers;
}
static int64_t time_of(Message *message, int64_t limit) {
    int kind;
    int64_t millis = rk.message_timestamp(message, &kind);
    return kind > NO_TIMESTAMP && millis >= 0 && millis < limit ? millis : -1;
}

static PyObject *block_of_numbers(Batch *self, Py_ssize_t start, Py_ssize_t stop, NumberOf *number_of, int64_t limit) {
    if (!pin(self, start, stop)) return NULL;
    size_t count = (size_t)(stop - start);
    int64_t *numbers = malloc(8 * count + 1);
    pthread_mutex_lock(&self->lock);
    for (size_t i = 0; numbers != NULL && i < count; i++)
        numbers[i] = number_of(self->messages[(size_t)start + i], limit);
    pthread_mutex_unlock(&self->lock);
    unpin(self);
    return numbers ? block_of(numbers, 8 * count) : PyErr_NoMemory();
}

/* offsets(start, stop): a block of int64. */
static PyObject *batch_offsets(PyObject *me, PyObject *arguments) {
    Py_ssize_t start, stop;
    if (!PyArg_ParseTuple(arguments, "nn", &start, &stop)) return NULL;
    return block_of_numbers((Batch *)me, start, stop, offset_of, 0);
}

/* sizes(start, stop, with headers): a block of int64, the bytes of key and value; with what librdkafka keeps for headers,
 * if asked for. */
static PyObject *batch_sizes(PyObject *me, PyObject *arguments) {
    Py_ssize_t start, stop;
    int with_headers;
    if (!PyArg_ParseTuple(arguments, "nnp", &start, &stop, &with_headers)) return NULL;
    int counted = !with_headers ? NO_HEADERS : ((Batch *)me)->calls > 0 ? HEADERS_IN_USE : HEADERS;
    return block_of_numbers((Batch *)me, start, stop, size_of, counted);
}

/* times(start, stop, end of time): a block of int64, milliseconds; -1 where a message has no time in a calendar. */
static PyObject *batch_times(PyObject *me, PyObject *arguments) {
    Py_ssize_t start, stop;
    long long end_of_time;
    if (!PyArg_ParseTuple(arguments, "nnL", &start, &stop, &end_of_time)) return NULL;
    return block_of_numbers((Batch *)me, start, stop, time_of, end_of_time);
}

/* ---------------------------------------------------------------- single messages */

static int append_header(void *to, size_t number, const char *name, size_t length, const void *value, size_t size) {
    return append(to, Py_BuildValue("(s#y#)", name, (Py_ssize_t)length, value, (Py_ssize_t)size));
}

/* message(i): (topic, partition, offset, key, value, (timestamp type, milliseconds), headers). Headers are a list of
 * (name, value), None where there are none, False where a name is no UTF-8. */
static PyObject *batch_message(PyObject *me, PyObject *argument) {
    Batch *self = (Batch *)me;
    Py_ssize_t place = PyLong_AsSsize_t(argument);
    if (place == -1 && PyErr_Occurred()) return NULL;
    if (place < 0 || place >= self->count) {
        PyErr_SetString(PyExc_IndexError, "the batch has no such message");
        return NULL;
    }
    if (!pin(self, place, place + 1)) return NULL;
    const Message *message = self->messages[place];
    PyObject *answer = NULL, *headers = PyList_New(0);
    Headers *unpacked;
    pthread_mutex_lock(&self->lock);
    rk.message_headers(message, &unpacked);
    pthread_mutex_unlock(&self->lock); /* which only calls hold that do not wait for the interpreter's */
    int is_unreadable = 0, found = headers ? each_header(message, append_header, headers, &is_unreadable) : -1;
    if (found == 0 || is_unreadable) {
        Py_DECREF(headers);
        headers = Py_NewRef(is_unreadable ? Py_False : Py_None);
    }
    if (found >= 0) {
        int kind;
        int64_t millis = rk.message_timestamp(message, &kind);
        answer = Py_BuildValue(
            "(siLy#y#(iL)O)", rk.topic_name(message->rkt), (int)message->partition, (long long)message->offset,
            (const char *)message->key, (Py_ssize_t)message->key_len, (const char *)message->payload,
            (Py_ssize_t)message->len, kind, (long long)millis, headers);
    }
    Py_XDECREF(headers);
    unpin(self);
    return answer;
}

static Py_ssize_t batch_length(PyObject *me) { return ((Batch *)me)->count; }
static PyObject *batch_runs(PyObject *me, void *nothing) { return Py_NewRef(((Batch *)me)->runs); }
static PyObject *batch_events(PyObject *me, void *nothing) { return Py_NewRef(((Batch *)me)->events); }
static PyObject *batch_value_bytes(PyObject *me, void *nothing) { return PyLong_FromLongLong(((Batch *)me)->value_bytes); }
static PyObject *batch_key_bytes(PyObject *me, void *nothing) { return PyLong_FromLongLong(((Batch *)me)->key_bytes); }
static PyObject *batch_header_bytes(PyObject *me, void *nothing) {
    return PyLong_FromLongLong(((Batch *)me)->header_bytes);
}

static PyMethodDef batch_methods[] = {
    {"values", batch_values, METH_VARARGS, NULL},
    {"format", batch_format, METH_VARARGS, NULL},
    {"json", batch_json, METH_VARARGS, NULL},
    {"columns", batch_columns, METH_VARARGS, NULL},
    {"offsets", batch_offsets, METH_VARARGS, NULL},
    {"sizes", batch_sizes, METH_VARARGS, NULL},
    {"times", batch_times, METH_VARARGS, NULL},
    {"message", batch_message, METH_O, NULL},
    {"release", batch_release, METH_NOARGS, NULL},
    {"release_first", batch_release_first, METH_O, NULL},
    {"reorder", batch_reorder, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef batch_attributes[] = {
    {"runs", batch_runs, NULL, NULL, NULL},               /* [(topic, partition, start, stop, first, next), …] */
    {"events", batch_events, NULL, NULL, NULL},           /* [(topic or None, partition, offset, code, text), …] */
    {"value_bytes", batch_value_bytes, NULL, NULL, NULL}, /* what all messages hold */
    {"key_bytes", batch_key_bytes, NULL, NULL, NULL},
    {"header_bytes", batch_header_bytes, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot batch_slots[] = {
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_methods, batch_methods},
    {Py_tp_getset, batch_attributes},
    {Py_sq_length, batch_length},
    {0, NULL}};
static PyType_Spec batch_spec = {
    "zkgroup.clients.kafka._native.Batch", sizeof(Batch), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, batch_slots};

/* ---------------------------------------------------------------- the module */

/* is_json(bytes): whether this is one JSON value, as columns() checks it. */
static PyObject *module_is_json(PyObject *module, PyObject *value) {
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(value, &bytes, &length)) return NULL;
    return PyBool_FromLong(is_json((const unsigned char *)bytes, (size_t)length));
}

static PyMethodDef functions[] = {{"is_json", module_is_json, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *client = PyImport_ImportModule("confluent_kafka.cimpl");
    PyObject *path = client ? PyObject_GetAttrString(client, "__file__") : NULL;
    const char *name = path ? PyUnicode_AsUTF8AndSize(path, NULL) : NULL;
    int is_loaded = name != NULL && load_librdkafka(name) == 0;
    Py_XDECREF(path);
    Py_XDECREF(client);
    if (!is_loaded) return NULL;
    PyObject *module = PyModule_Create(&definition), *reader = NULL;
    if (module == NULL) return NULL;
    NativeError = PyErr_NewException("zkgroup.clients.kafka._native.NativeError", NULL, NULL);
    BlockType = (PyTypeObject *)PyType_FromSpec(&block_spec);
    BatchType = (PyTypeObject *)PyType_FromSpec(&batch_spec);
    reader = PyType_FromSpec(&reader_spec);
    int is_done = NativeError != NULL && BlockType != NULL && BatchType != NULL && reader != NULL &&
                  PyModule_AddObjectRef(module, "NativeError", NativeError) == 0 &&
                  PyModule_AddObjectRef(module, "Reader", reader) == 0 &&
                  /* native_reader.py names the same number, and takes no extension of another source. */
                  PyModule_AddIntConstant(module, "interface", 3) == 0 &&
                  PyModule_AddStringConstant(module, "librdkafka", rk.version_str()) == 0;
    Py_XDECREF(reader);
    if (is_done) return module;
    Py_DECREF(module);
    return NULL;
}
