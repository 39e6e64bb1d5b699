/* Avro's binary encoding → Arrow buffers. No Python object is made for a value.
 *
 * decode(data, ends, valid, program) decodes values that lie one behind the other in data: value i is
 * data[ends[i]:ends[i+1]], int32, and is left out where valid (bytes, or None) has a zero. program: int64 numbers, four
 * for each node of the schema, in preorder (see avro_schema). Returns two lists. The first has for each node: how many
 * of its values are null; validity, a byte a value; offsets, int32; values, or bytes that offsets cut. The second has the
 * places that do not decode, which are null, like those that are left out.
 *
 * A value is decoded as a whole or not at all: where it fails, every buffer is cut to where it was.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, ENUM, FIXED, RECORD, ARRAY, MAP, NULLABLE, SINGLE, DECIMAL };

typedef struct {
    char *data;
    size_t size, room;
} Buffer;

typedef struct {
    int64_t kind, count, low, high;   /* as the program has them */
    int next;                         /* the node behind it and all that is within */
    Buffer valid, offsets, values;
    int64_t nulls;
} Node;

typedef struct {
    const unsigned char *at, *end;
    Node *nodes;
    int no_memory;
} Reader;

static int put(Reader *reader, Buffer *buffer, const void *data, size_t size) {
    if (buffer->size + size > buffer->room) {
        size_t room = buffer->room * 2 > buffer->size + size ? buffer->room * 2 : buffer->size + size + 256;
        char *more = PyMem_Realloc(buffer->data, room);
        if (!more) {
            reader->no_memory = 1;
            return 0;
        }
        buffer->data = more;
        buffer->room = room;
    }
    if (size) memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return 1;
}

static int put_offset(Reader *reader, Buffer *buffer, size_t offset) {
    int32_t number = (int32_t)offset;
    if (offset > INT32_MAX) return 0;
    return put(reader, buffer, &number, sizeof number);
}

static int read_long(Reader *reader, int64_t *number) {
    uint64_t found = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (reader->at == reader->end) return 0;
        unsigned char byte = *reader->at++;
        if (shift == 63 && byte > 1) return 0;
        found |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *number = (int64_t)(found >> 1) ^ -(int64_t)(found & 1);
            return 1;
        }
    }
    return 0;
}

static int is_text(const unsigned char *data, size_t size) {
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (i < size && data[i] < 0x80) i++;
    if (i == size) return 1;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)data + i, (Py_ssize_t)(size - i), "strict");
    if (!text) PyErr_Clear();
    Py_XDECREF(text);
    return text != NULL;
}

/* Bytes of a length that comes first, or is known. */
static int read_bytes(Reader *reader, Node *node, int64_t size, int text) {
    if (size < 0 && !read_long(reader, &size)) return 0;
    if (size < 0 || size > reader->end - reader->at) return 0;
    if (text && !is_text(reader->at, (size_t)size)) return 0;
    if (!put(reader, &node->values, reader->at, (size_t)size)) return 0;
    reader->at += size;
    return put_offset(reader, &node->offsets, node->values.size);
}

/* A number of 128 bits, of bytes of a length that comes first or is known: big-endian, of less digits than 10^high. */
static int read_decimal(Reader *reader, Node *node) {
    int64_t size = node->count;
    if (!size && !read_long(reader, &size)) return 0;
    if (size < 0 || size > reader->end - reader->at) return 0;
    const unsigned char *at = reader->at, *end = at + size;
    unsigned char sign = size && (*at & 0x80) ? 0xff : 0;
    reader->at = end;
    for (; end - at > 16; at++)
        if (*at != sign) return 0;
    if (size > 16 && ((*at & 0x80) ? 0xff : 0) != sign) return 0;
    unsigned __int128 bits = sign ? ~(unsigned __int128)0 : 0, limit = 1;
    for (; at < end; at++) bits = bits << 8 | *at;
    for (int64_t digit = 0; digit < node->high; digit++) limit *= 10;
    if ((sign ? ~bits + 1 : bits) >= limit) return 0;
    return put(reader, &node->values, &bits, sizeof bits);
}

/* An entry for which there is no value, with all that is within a struct. */
static int put_nothing(Reader *reader, int place) {
    Node *node = reader->nodes + place;
    static const char zeros[16] = {0};
    switch (node->kind) {
    case BOOLEAN:
        return put(reader, &node->values, zeros, 1);
    case INT:
    case FLOAT:
    case ENUM:
        return put(reader, &node->values, zeros, 4);
    case LONG:
    case DOUBLE:
        return put(reader, &node->values, zeros, 8);
    case DECIMAL:
        return put(reader, &node->values, zeros, 16);
    case BYTES:
    case STRING:
    case FIXED:
        return put_offset(reader, &node->offsets, node->values.size);
    case ARRAY:
    case MAP:
        return put_offset(reader, &node->offsets, (size_t)node->high);
    case NULLABLE:
        node->nulls++;
        return put(reader, &node->valid, zeros, 1) && put_nothing(reader, place + 1);
    case SINGLE:
        return put_nothing(reader, place + 1);
    }
    for (int inner = place + 1; inner < node->next; inner = reader->nodes[inner].next)
        if (!put_nothing(reader, inner)) return 0;
    return 1;
}

static int read_value(Reader *reader, int place) {
    Node *node = reader->nodes + place;
    int64_t number;
    switch (node->kind) {
    case BOOLEAN:
        if (reader->at == reader->end || *reader->at > 1) return 0;
        return put(reader, &node->values, reader->at++, 1);
    case INT:
    case ENUM: {
        if (!read_long(reader, &number) || number < node->low || number >= node->high) return 0;
        int32_t small = (int32_t)number;
        return put(reader, &node->values, &small, 4);
    }
    case LONG:
        if (!read_long(reader, &number)) return 0;
        if (node->low < node->high && (number < node->low || number >= node->high)) return 0;
        return put(reader, &node->values, &number, 8);
    case FLOAT:
    case DOUBLE: {
        Py_ssize_t size = node->kind == FLOAT ? 4 : 8;
        if (reader->end - reader->at < size) return 0;
        reader->at += size;
        return put(reader, &node->values, reader->at - size, (size_t)size);
    }
    case BYTES:
        return read_bytes(reader, node, -1, 0);
    case STRING:
        return read_bytes(reader, node, -1, 1);
    case FIXED:
        return read_bytes(reader, node, node->count, 0);
    case DECIMAL:
        return read_decimal(reader, node);
    case RECORD:
        for (int inner = place + 1; inner < node->next; inner = reader->nodes[inner].next)
            if (!read_value(reader, inner)) return 0;
        return 1;
    case ARRAY:
    case MAP:
        for (;;) {
            int64_t count, size;
            if (!read_long(reader, &count)) return 0;
            if (!count) break;
            if (count < 0) {
                if (count == INT64_MIN || !read_long(reader, &size)) return 0;
                count = -count;
            }
            if (count > reader->end - reader->at) return 0; /* an item has a byte at least */
            for (; count; count--) {
                for (int inner = place + 1; inner < node->next; inner = reader->nodes[inner].next)
                    if (!read_value(reader, inner)) return 0;
                node->high++; /* items so far */
            }
        }
        return put_offset(reader, &node->offsets, (size_t)node->high);
    case SINGLE:
        return read_long(reader, &number) && number == 0 && read_value(reader, place + 1);
    case NULLABLE: {
        if (!read_long(reader, &number) || (number != 0 && number != 1)) return 0;
        char there = number != node->count;
        node->nulls += !there;
        if (!put(reader, &node->valid, &there, 1)) return 0;
        return there ? read_value(reader, place + 1) : put_nothing(reader, place + 1);
    }
    }
    return 0;
}

static PyObject *taken(Buffer *buffer) {
    return PyBytes_FromStringAndSize(buffer->data ? buffer->data : "", (Py_ssize_t)buffer->size);
}

static int is_cut(int64_t kind) { return kind == BYTES || kind == STRING || kind == FIXED || kind == ARRAY || kind == MAP; }

/* Where all buffers end: what a value that fails goes back to. */
typedef struct {
    size_t valid, offsets, values;
    int64_t nulls, high;
} Mark;

static PyObject *decode(PyObject *module, PyObject *arguments) {
    Py_buffer data, ends, valid = {0}, program;
    PyObject *validity, *answer = NULL, *bad = NULL, *columns = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*Oy*", &data, &ends, &validity, &program)) return NULL;
    int count = (int)(program.len / 32), values = (int)(ends.len / 4) - 1;
    const int64_t *numbers = program.buf;
    const int32_t *offsets = ends.buf;
    Node *nodes = PyMem_Calloc((size_t)count + 1, sizeof *nodes);
    Mark *marks = PyMem_Calloc((size_t)count + 1, sizeof *marks);
    Reader reader = {NULL, NULL, nodes, 0};
    if (validity != Py_None && PyObject_GetBuffer(validity, &valid, PyBUF_SIMPLE)) goto done;
    bad = PyList_New(0);
    if (!nodes || !marks || !bad) {
        PyErr_NoMemory();
        goto done;
    }
    for (int i = 0; i < count; i++) {
        nodes[i].kind = numbers[4 * i];
        nodes[i].next = (int)numbers[4 * i + 1];
        nodes[i].count = numbers[4 * i + 2] < 0 ? 0 : numbers[4 * i + 2];
        nodes[i].low = numbers[4 * i + 2];
        nodes[i].high = nodes[i].kind == ARRAY || nodes[i].kind == MAP ? 0 : numbers[4 * i + 3];
        if (is_cut(nodes[i].kind) && !put_offset(&reader, &nodes[i].offsets, 0)) goto no_memory;
    }
    for (int value = 0; value < values; value++) {
        char there = !valid.buf || ((char *)valid.buf)[value];
        if (there) {
            for (int i = 0; i < count; i++)
                marks[i] = (Mark){nodes[i].valid.size, nodes[i].offsets.size, nodes[i].values.size, nodes[i].nulls,
                                  nodes[i].high};
            reader.at = (unsigned char *)data.buf + offsets[value];
            reader.end = (unsigned char *)data.buf + offsets[value + 1];
            if (read_value(&reader, 0) && reader.at == reader.end) continue;
            if (reader.no_memory) goto no_memory;
            for (int i = 0; i < count; i++) {
                nodes[i].valid.size = marks[i].valid;
                nodes[i].offsets.size = marks[i].offsets;
                nodes[i].values.size = marks[i].values;
                nodes[i].nulls = marks[i].nulls;
                nodes[i].high = marks[i].high;
            }
            PyObject *place = PyLong_FromLong(value);
            if (!place || PyList_Append(bad, place)) {
                Py_XDECREF(place);
                goto done;
            }
            Py_DECREF(place);
        }
        if (!put_nothing(&reader, 0)) goto no_memory;
    }
    columns = PyList_New(count);
    if (!columns) goto done;
    for (int i = 0; i < count; i++) {
        PyObject *triple = Py_BuildValue(
            "(LNNN)", (long long)nodes[i].nulls, taken(&nodes[i].valid), taken(&nodes[i].offsets), taken(&nodes[i].values));
        if (!triple || PyList_SetItem(columns, i, triple)) goto done;
    }
    answer = Py_BuildValue("(OO)", columns, bad);
    goto done;
no_memory:
    PyErr_NoMemory();
done:
    for (int i = 0; nodes && i < count; i++) {
        PyMem_Free(nodes[i].valid.data);
        PyMem_Free(nodes[i].offsets.data);
        PyMem_Free(nodes[i].values.data);
    }
    PyMem_Free(nodes);
    PyMem_Free(marks);
    Py_XDECREF(bad);
    Py_XDECREF(columns);
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&program);
    if (valid.buf) PyBuffer_Release(&valid);
    return answer;
}

static PyMethodDef functions[] = {{"decode", decode, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_avro", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__avro(void) { return PyModule_Create(&definition); }
