/* Exercises the C interface from C: every status, two encoders, a caller's program. Exit code: the check that failed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "msdc_encoder.h"

static int fail_after;
static float spoil;

/* Stops a batch when `context` rows are ready. */
static int32_t stop_at(void *context, size_t done) { return done >= *(size_t *)context; }

static int32_t program(void *context, const int32_t *ids, size_t count, size_t prompt_tokens, float *vector, size_t width) {
  char error[200];
  if (fail_after > 0 && --fail_after == 0) return 7;
  /* This bundle pools its prompts. */
  if (prompt_tokens != 0) return 8;
  const int32_t code = msdc_encode_ids(context, ids, count, vector, width, error, sizeof error);
  if (spoil != 0) vector[width - 1] = spoil;
  return code;
}

static void keep_text(void *context, const char *text, size_t size) {
  if (size < 500) snprintf(context, 500, "%.*s", (int)size, text);
}

static void keep_span(void *context, size_t start, size_t end) {
  size_t *spans = context;
  spans[++spans[0]] = 100 * start + end;
}

int main(int count, char **arguments) {
  char error[200] = "untouched";
  float vector[512], other[512];
  int32_t ids[512];
  size_t found = 0;
  msdc_encoder *encoder = NULL, *outer = NULL;
  msdc_tokenizer *tokenizer = NULL;
  msdc_self_test_result result;
  msdc_options options = {sizeof options, 2, 1};
  if (count != 2 || msdc_open(arguments[1], &options, &encoder, error, sizeof error) != MSDC_OK) return printf("%s\n", error), 1;
  size_t width = (size_t)msdc_width(encoder);
  if (msdc_self_test(encoder, 0.999f, &result, error, sizeof error) != MSDC_OK) return printf("%s\n", error), 2;
  if (result.texts < 60 || result.ids_differ != 0) return 3;
  /* A promise no machine keeps. */
  if (msdc_self_test(encoder, 1.5f, &result, error, sizeof error) != MSDC_GOLDEN || !strstr(error, "is promised")) return 4;
  if (msdc_encode(encoder, NULL, "a b", 3, vector, width, NULL, 0) != MSDC_OK) return 5;
  if (msdc_encode(encoder, NULL, "a b", 3, vector, width + 1, error, sizeof error) != MSDC_BAD_ARGUMENT) return 6;
  if (msdc_encode(NULL, NULL, "a", 1, vector, width, error, sizeof error) != MSDC_BAD_ARGUMENT) return 7;
  if (msdc_encoder_tokenize(encoder, "a b", 3, ids, 1, &found, error, sizeof error) != MSDC_BAD_ARGUMENT || found < 3) return 8;
  /* Prompts: none in this bundle; a given one is put before the text; fewer numbers are the first ones. */
  if (strcmp(msdc_prompt(encoder, NULL), "") != 0 || msdc_prompt(encoder, "query") != NULL) return 22;
  if (msdc_encode(encoder, "a ", "b", 1, other, width - 1, error, sizeof error) != MSDC_OK) return 23;
  if (memcmp(vector, other, (width - 1) * sizeof(float)) != 0) return 24;
  ids[0] = -1;
  if (msdc_encode_ids(encoder, ids, 1, vector, width, error, sizeof error) != MSDC_BAD_ARGUMENT) return 9;
  if (msdc_encode_ids(encoder, ids, 0, vector, width, error, sizeof error) != MSDC_BAD_ARGUMENT) return 10;
  /* More than fit are not read. */
  if (msdc_encode_ids(encoder, ids, SIZE_MAX / 8, vector, width, error, sizeof error) != MSDC_BAD_ARGUMENT) return 38;
  /* A second encoder on the same pool, and one that asks for another size of it. */
  if (msdc_open(arguments[1], &options, &outer, error, sizeof error) != MSDC_OK) return printf("%s\n", error), 11;
  msdc_close(outer);
  options.threads = 3;
  if (msdc_open(arguments[1], &options, &outer, error, sizeof error) != MSDC_BAD_ARGUMENT || !strstr(error, "one pool")) return 12;
  /* A caller's program. */
  if (msdc_open_with(arguments[1], NULL, "executorch", program, encoder, &outer, error, sizeof error) != MSDC_OK) return 13;
  if (msdc_encode(outer, NULL, "a b", 3, other, width, error, sizeof error) != MSDC_OK) return 14;
  if (memcmp(vector, other, width * sizeof(float)) != 0) return 15;
  fail_after = 1;
  if (msdc_encode(outer, NULL, "a b", 3, other, width, error, sizeof error) != MSDC_RUNTIME || !strstr(error, "code 7")) return 16;
  /* Vectors that are none; also where only numbers are kept that are some. */
  const char *three[] = {"a", "b", "c"};
  const size_t ones[] = {1, 1, 1};
  const float none[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; ++i) {
    spoil = none[i];
    if (msdc_encode(outer, NULL, "a b", 3, other, width, error, sizeof error) != MSDC_RUNTIME || !strstr(error, "NaN")) return 40;
    if (msdc_encode(outer, NULL, "a b", 3, other, 1, error, sizeof error) != MSDC_RUNTIME) return 41;
    if (msdc_encode_ids(outer, ids + 1, 1, other, width, error, sizeof error) != MSDC_RUNTIME) return 42;
    if (msdc_encode_batch(outer, NULL, three, ones, 1, other, width, NULL, NULL, error, sizeof error) != MSDC_RUNTIME) return 43;
    if (!strstr(error, "text 1: the vector holds NaN or infinity")) return 44;
    if (msdc_self_test(outer, 0.9f, &result, error, sizeof error) != MSDC_RUNTIME) return 45;
  }
  spoil = 0;
  msdc_close(outer);
  if (msdc_open_with(arguments[1], NULL, "tflite", program, encoder, &outer, error, sizeof error) != MSDC_UNSUPPORTED) return 17;
  if (msdc_tokenizer_open(arguments[1], 1, &tokenizer, error, sizeof error) != MSDC_OK) return 18;
  if (msdc_tokenizer_max_length(tokenizer) != msdc_max_length(encoder)) return 19;
  msdc_tokenizer_close(tokenizer);
  /* A batch, alone and stopped after its first text. */
  const char *texts[] = {"a b", "b", ""};
  const size_t sizes[] = {3, 1, 0};
  size_t limit = 1;
  float *rows = malloc(3 * width * sizeof(float));
  if (msdc_encode_batch(encoder, NULL, texts, sizes, 3, rows, width, NULL, NULL, error, sizeof error) != MSDC_OK) return 22;
  if (memcmp(rows, vector, width * sizeof(float)) != 0) return 23;
  memset(rows, 0, 3 * width * sizeof(float));
  if (msdc_encode_batch(encoder, NULL, texts, sizes, 3, rows, width, stop_at, &limit, error, sizeof error) != MSDC_CANCELLED) return 24;
  if (!strstr(error, "after 1 of 3") || memcmp(rows, vector, width * sizeof(float)) != 0 || rows[width] != 0) return 25;
  if (msdc_encode_batch(encoder, NULL, NULL, NULL, 3, rows, width, NULL, NULL, error, sizeof error) != MSDC_BAD_ARGUMENT) return 26;
  free(rows);
  /* Search: the vector itself is nearest, a zero row has cosine 0. */
  float two[4] = {0, 0, 3, 4}, query[2] = {0.6f, 0.8f}, cosines[2];
  int32_t nearest[2];
  if (msdc_top_k(query, two, 2, 2, 5, nearest, cosines, &found, error, sizeof error) != MSDC_OK || found != 2) return 27;
  if (nearest[0] != 1 || fabsf(cosines[0] - 1) > 1e-6f || nearest[1] != 0 || cosines[1] != 0) return 28;
  if (msdc_top_k(query, NULL, 2, 2, 1, nearest, cosines, &found, error, sizeof error) != MSDC_BAD_ARGUMENT) return 29;
  if (fabsf(msdc_cosine(query, two + 2, 2) - 1) > 1e-6f) return 30;
  /* Words, plans, and what to show of a text. */
  char words[500];
  size_t spans[9] = {0}, best = 9;
  const int64_t starts[] = {0, 7}, ends[] = {6, 20};
  const float nearness[] = {0.4f, 0.2f};
  if (msdc_search_words("Wi-Fi", 5, keep_text, words, error, sizeof error) != MSDC_OK || strcmp(words, "wi fi wifi") != 0) return 46;
  if (msdc_search_words("a", 1, NULL, NULL, error, sizeof error) != MSDC_BAD_ARGUMENT) return 47;
  if (msdc_search_plan("fast -car ", 10, 1, keep_text, words, error, sizeof error) != MSDC_OK) return 48;
  if (!strstr(words, "\"without\": \"\\\"car\\\"\"") || strstr(words, "[1")) return printf("%s\n", words), 49;
  if (msdc_search_plan("fast -car ", 10, 0, keep_text, words, error, sizeof error) != MSDC_OK || !strstr(words, "null")) return 50;
  const char *text = "A car. The fast car.";
  if (msdc_search_show(text, 20, "fast\ncar", 8, starts, ends, nearness, 2, 0, &best, keep_span, spans, error, sizeof error) != MSDC_OK) return 51;
  if (best != 1 || spans[0] != 3 || spans[1] != 205 || spans[2] != 1115 || spans[3] != 1619) return 52;
  if (msdc_search_show(text, 20, "", 0, starts, ends, nearness, 2, 1, &best, keep_span, spans, error, sizeof error) != MSDC_OK) return 53;
  if (best != 0 || spans[0] != 3) return 54;
  if (msdc_search_show(text, 20, "", 0, starts, ends, nearness, 0, 1, &best, keep_span, spans, error, sizeof error) != MSDC_BAD_ARGUMENT) return 55;
  if (msdc_search_show(text, 20, "", 0, starts, ends, nearness, 2, 1, NULL, keep_span, spans, error, sizeof error) != MSDC_BAD_ARGUMENT) return 56;
  /* The files that an app needs, with the size of the list asked for first. */
  char lines[4096];
  if (msdc_bundle_files(arguments[1], "executorch", lines, 1, &found, error, sizeof error) != MSDC_BAD_ARGUMENT) return 31;
  if (found < 100 || msdc_bundle_files(arguments[1], "executorch", lines, found, &found, error, sizeof error) != MSDC_OK) return 32;
  if (!strstr(lines, "golden.json\t") || !strstr(lines, ".pte\t") || strlen(lines) + 1 != found) return 33;
  if (msdc_bundle_files(arguments[1], "tflite", lines, sizeof lines, &found, error, sizeof error) != MSDC_UNSUPPORTED) return 34;
  msdc_close(encoder);
  msdc_close(NULL);
  if (msdc_open("/nowhere", NULL, &encoder, error, sizeof error) != MSDC_DAMAGED || strchr(error, '\n')) return 20;
  /* A line stays one line of whole characters, whatever the caller names. */
  if (msdc_open("/a\nb\033[2J\177\302\233\342\200\256\377\303\251", NULL, &encoder, error, sizeof error) != MSDC_DAMAGED) return 35;
#define MARK "\357\277\275"
  if (strstr(error, "/a" MARK "b" MARK "[2J" MARK MARK MARK MARK "\303\251: not") != error) return printf("%s\n", error), 36;
  char little[5], split[4];
  if (msdc_open("/a\303\251", NULL, &encoder, split, sizeof split) != MSDC_DAMAGED || strcmp(split, "/a") != 0) return 37;
  if (msdc_open("/nowhere", NULL, &encoder, little, sizeof little) != MSDC_DAMAGED || strlen(little) != 4) return 21;
  printf("%s\n", msdc_runtime());
  return 0;
}
