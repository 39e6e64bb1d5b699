/* The limit: values to stdout in a C loop on the librdkafka of confluent-kafka, with one consumer and no group.
 * Usage: consume_loop LIBRDKAFKA BOOTSTRAP TOPIC PARTITIONS MESSAGES. LIBRDKAFKA: the library's file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct {
    int err;
    void *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private;
} Message;
enum { BATCH = 500, CONSUMER = 1, BYTES = 1 << 20 };

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) exit((fprintf(stderr, "no %s\n", name), 1));
    return found;
}

static void flush(char *bytes, size_t *used) {
    for (size_t at = 0; at < *used;) {
        ssize_t written = write(STDOUT_FILENO, bytes + at, *used - at);
        if (written < 0) exit((perror("write"), 1));
        at += (size_t)written;
    }
    *used = 0;
}

int main(int count, char **words) {
    if (count != 6) return fprintf(stderr, "LIBRDKAFKA BOOTSTRAP TOPIC PARTITIONS MESSAGES\n"), 2;
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    void *(*conf_new)(void) = function(library, "rd_kafka_conf_new");
    int (*conf_set)(void *, const char *, const char *, char *, size_t) = function(library, "rd_kafka_conf_set");
    void *(*new)(int, void *, char *, size_t) = function(library, "rd_kafka_new");
    int (*poll_set_consumer)(void *) = function(library, "rd_kafka_poll_set_consumer");
    void *(*list_new)(int) = function(library, "rd_kafka_topic_partition_list_new");
    void *(*list_add)(void *, const char *, int32_t) = function(library, "rd_kafka_topic_partition_list_add");
    int (*set_offset)(void *, const char *, int32_t, int64_t) =
        function(library, "rd_kafka_topic_partition_list_set_offset");
    int (*assign)(void *, const void *) = function(library, "rd_kafka_assign");
    void *(*queue_get_consumer)(void *) = function(library, "rd_kafka_queue_get_consumer");
    ssize_t (*consume)(void *, int, Message **, size_t) = function(library, "rd_kafka_consume_batch_queue");
    void (*message_destroy)(Message *) = function(library, "rd_kafka_message_destroy");
    const char *properties[][2] = {
        {"bootstrap.servers", words[2]}, {"group.id", "limit"}, {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"}, {"fetch.queue.backoff.ms", "5"}, {"fetch.wait.max.ms", "100"},
        {"queued.max.messages.kbytes", "49152"}};
    char problem[512], *bytes = malloc(BYTES);
    size_t used = 0;
    long left = atol(words[5]);
    void *conf = conf_new();
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        if (conf_set(conf, properties[i][0], properties[i][1], problem, sizeof problem))
            return fprintf(stderr, "%s\n", problem), 1;
    void *consumer = new (CONSUMER, conf, problem, sizeof problem), *partitions = list_new(8);
    if (consumer == NULL || bytes == NULL) return fprintf(stderr, "%s\n", problem), 1;
    poll_set_consumer(consumer);
    for (int32_t number = 0; number < atoi(words[4]); number++) {
        list_add(partitions, words[3], number);
        set_offset(partitions, words[3], number, 0);
    }
    assign(consumer, partitions);
    for (void *queue = queue_get_consumer(consumer); left > 0;) {
        Message *messages[BATCH];
        ssize_t got = consume(queue, 100, messages, BATCH);
        for (ssize_t i = 0; i < got; i++) {
            Message *message = messages[i];
            if (message->err == 0) {
                if (used + message->len + 1 > BYTES) flush(bytes, &used);
                if (message->len + 1 > BYTES) return fprintf(stderr, "a message is too large\n"), 1;
                if (message->len) memcpy(bytes + used, message->payload, message->len);
                used += message->len;
                bytes[used++] = '\n';
                left--;
            }
            message_destroy(message);
        }
    }
    flush(bytes, &used);
    _exit(0); /* not to wait for a consumer that is closed */
}
