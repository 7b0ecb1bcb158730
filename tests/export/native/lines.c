/* Prints what the core makes of the lines of a file: ids, words, plan, numbers of passages, cosines. For comparisons
 * between processors; the program is a stand-in that needs no runtime.
 *   lines BUNDLE RUNTIME FILE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "msdc_encoder.h"

static char error[500];

static void check(msdc_status status, const char *what) {
  if (status == MSDC_OK) return;
  fprintf(stderr, "%s: %s\n", what, error);
  exit(1);
}

static int32_t stand_in(void *context, const int32_t *ids, size_t count, size_t prompt_tokens, float *vector,
                        size_t width) {
  (void)context;
  (void)prompt_tokens;
  for (size_t i = 0; i < width; ++i) vector[i] = (float)((ids[i % count] + (int32_t)i) % 17 - 8);
  return 0;
}

static void print_text(void *context, const char *text, size_t size) {
  (void)context;
  printf("%.*s\n", (int)size, text);
}

static int32_t print_passage(void *context, size_t start, size_t end, float scale, const int8_t *vector, size_t width) {
  (void)context;
  printf(" %zu-%zu:%.6f:%u", start, end, (double)scale,
         msdc_crc32(0, (const uint8_t *)vector, vector == NULL ? 0 : width));
  return 0;
}

int main(int count, char **words) {
  if (count != 4) return 2;
  msdc_encoder *encoder = NULL;
  msdc_options options = {sizeof(msdc_options), 1, 1};
  check(msdc_open_with(words[1], &options, words[2], stand_in, NULL, &encoder, error, sizeof error), "open");
  const size_t longest = (size_t)msdc_max_length(encoder), width = (size_t)msdc_width(encoder);
  int32_t *ids = malloc(longest * sizeof *ids);
  float *first = malloc(width * sizeof *first), *vector = malloc(width * sizeof *vector);
  FILE *file = fopen(words[3], "rb");
  static char line[1 << 20];
  for (int number = 0; file != NULL && fgets(line, sizeof line, file) != NULL; ++number) {
    const size_t size = strcspn(line, "\n");
    size_t tokens = 0;
    check(msdc_encoder_tokenize(encoder, line, size, ids, longest, &tokens, error, sizeof error), "tokenize");
    for (size_t i = 0; i < tokens; ++i) printf("%d ", ids[i]);
    printf("\n");
    check(msdc_search_words(line, size, print_text, NULL, error, sizeof error), "words");
    check(msdc_search_plan(line, size, 1, print_text, NULL, error, sizeof error), "plan");
    check(msdc_index_document(encoder, "", 0, line, size, 0, print_passage, NULL, error, sizeof error), "passages");
    check(msdc_encode(encoder, NULL, line, size, vector, width, error, sizeof error), "encode");
    if (number == 0) memcpy(first, vector, width * sizeof *first);
    printf("\n%.5f\n", (double)msdc_cosine(first, vector, width));
  }
  return 0;
}
