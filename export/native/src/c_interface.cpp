// The C interface over Encoder and Tokenizer: exceptions end here.
#include "msdc_encoder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "encoder.h"
#include "failure.h"
#include "files.h"
#include "interface.h"
#include "matches.h"
#include "search.h"
#include "similarity.h"
#include "utf8.h"
#include "words.h"

namespace {

using msdc::guarded;
using msdc::need;
using msdc::view;

// How much further from 1 a single golden cosine may lie than the promised mean.
constexpr double kSingleSlack = 10;

void copy_ids(const std::vector<int32_t>& from, int32_t* ids, size_t capacity, size_t* count) {
  *count = from.size();
  need(from.size() <= capacity, "more ids than the array holds");
  std::copy(from.begin(), from.end(), ids);
}

msdc_options read_options(const msdc_options* options) {
  msdc_options held = {sizeof(msdc_options), 1, 0};
  // A caller built with an older, shorter struct leaves the newer fields at their defaults.
  if (options != nullptr) std::memcpy(&held, options, std::min<size_t>(options->size, sizeof held));
  need(held.threads >= 0 && held.threads <= 256, "threads must be 0 to 256");
  return held;
}

// The program runs on the other side of the interface.
class CallersEngine : public msdc::Engine {
 public:
  CallersEngine(msdc_program program, void* context) : program_(program), context_(context) {}

  void run(const std::vector<int32_t>& ids, size_t prompt_tokens, float* vector, size_t width) override {
    const int32_t code = program_(context_, ids.data(), ids.size(), prompt_tokens, vector, width);
    if (code != 0) throw msdc::Failure(MSDC_RUNTIME, "the program failed with code " + std::to_string(code));
  }

 private:
  msdc_program program_;
  void* context_;
};

void check_width(const msdc_encoder* encoder, const float* vector, size_t width) {
  need(encoder != nullptr && vector != nullptr, "no encoder or no vector");
  need(width > 0 && width <= static_cast<size_t>(encoder->encoder.manifest().vector_width),
       "the vector's width is larger than the encoder's");
}

}  // namespace

extern "C" {

const char* msdc_runtime(void) { return msdc::engine_name(); }

msdc_status msdc_open(const char* folder, const msdc_options* options, msdc_encoder** encoder, char* error,
                      size_t error_size) {
  return guarded(error, error_size, [&] {
    need(folder != nullptr && encoder != nullptr, "no folder or no place for the encoder");
    *encoder = nullptr;
    const msdc_options held = read_options(options);
    *encoder = new msdc_encoder{{folder, std::max(held.threads, 1), held.check_files != 0}};
  });
}

msdc_status msdc_open_with(const char* folder, const msdc_options* options, const char* runtime, msdc_program program,
                           void* context, msdc_encoder** encoder, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(folder != nullptr && runtime != nullptr && program != nullptr && encoder != nullptr,
         "no folder, runtime, program, or place for the encoder");
    *encoder = nullptr;
    const msdc_options held = read_options(options);
    *encoder = new msdc_encoder{
        {folder, held.check_files != 0, runtime, std::make_unique<CallersEngine>(program, context)}};
  });
}

msdc_status msdc_find_program(const char* folder, const char* runtime, char* file, size_t file_size,
                              int32_t* multi_method, int32_t* repeats, int32_t* takes_prompt, char* error,
                              size_t error_size) {
  return guarded(error, error_size, [&] {
    need(folder != nullptr && runtime != nullptr && file != nullptr && multi_method != nullptr && repeats != nullptr &&
             takes_prompt != nullptr,
         "no folder, runtime, or place for the answer");
    const msdc::Manifest manifest = msdc::Manifest::read(folder);
    const std::string name = manifest.program_files(runtime).front();
    need(name.size() < file_size, "the file's name is longer than its place");
    std::memcpy(file, name.c_str(), name.size() + 1);
    const bool executorch = manifest.executorch && runtime == std::string("executorch");
    *multi_method = executorch && manifest.executorch->multi_method ? 1 : 0;
    *repeats = executorch ? manifest.executorch->repeats : 1;
    *takes_prompt = manifest.include_prompt ? 0 : 1;
  });
}

msdc_status msdc_bundle_files(const char* folder, const char* runtime, char* lines, size_t capacity, size_t* size,
                              char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(folder != nullptr && runtime != nullptr && size != nullptr, "no folder, runtime, or place for the size");
    const msdc::Manifest manifest = msdc::Manifest::read(folder);
    std::vector<std::string> names = manifest.program_files(runtime);
    names.insert(names.begin(), {manifest.tokenizer_file, msdc::kGoldenFile});
    std::string out;
    for (const std::string& name : names) {
      const auto record = manifest.files.find(name);
      need(record != manifest.files.end(), "bundle.json does not list a file that the program needs");
      out += name + "\t" + std::to_string(record->second.bytes) + "\t" + record->second.sha256 + "\n";
    }
    *size = out.size() + 1;
    need(lines != nullptr && capacity >= *size, "the list of files is longer than its place");
    std::memcpy(lines, out.c_str(), *size);
  });
}

void msdc_close(msdc_encoder* encoder) { delete encoder; }

int32_t msdc_width(const msdc_encoder* encoder) {
  return encoder == nullptr ? 0 : encoder->encoder.manifest().vector_width;
}

int32_t msdc_max_length(const msdc_encoder* encoder) {
  return encoder == nullptr ? 0 : encoder->encoder.manifest().max_length;
}

const char* msdc_prompt(const msdc_encoder* encoder, const char* name) {
  if (encoder == nullptr) return nullptr;
  const msdc::Manifest& manifest = encoder->encoder.manifest();
  if (name == nullptr) return manifest.default_prompt.c_str();
  for (const auto& [known, prompt] : manifest.prompts) {
    if (known == name) return prompt.c_str();
  }
  return nullptr;
}

msdc_status msdc_find_prompt(const msdc_encoder* encoder, const char* name, const char** prompt, char* error,
                             size_t error_size) {
  return guarded(error, error_size, [&] {
    need(encoder != nullptr && name != nullptr && prompt != nullptr, "no encoder, name, or place for the prompt");
    *prompt = msdc_prompt(encoder, name);
    if (*prompt != nullptr) return;
    std::string known;
    for (const auto& entry : encoder->encoder.manifest().prompts) known += (known.empty() ? "" : ", ") + entry.first;
    const std::string line = "prompt \"" + std::string(name) + "\" is unknown; known: " + (known.empty() ? "none" : known);
    need(false, line.c_str());
  });
}

msdc_status msdc_encode(msdc_encoder* encoder, const char* prompt, const char* text, size_t text_size, float* vector,
                        size_t width, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    check_width(encoder, vector, width);
    msdc::Encoder& held = encoder->encoder;
    held.encode(held.tokenize(prompt, view(text, text_size)), held.prompt_tokens(prompt), vector, width);
  });
}

msdc_status msdc_encode_batch(msdc_encoder* encoder, const char* prompt, const char* const* texts,
                              const size_t* text_sizes, size_t count, float* vectors, size_t width, msdc_stop stop,
                              void* stop_context, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    check_width(encoder, vectors, width);
    need(count == 0 || (texts != nullptr && text_sizes != nullptr), "no texts");
    msdc::Encoder& held = encoder->encoder;
    const size_t prompt_tokens = held.prompt_tokens(prompt);
    for (size_t i = 0; i < count; ++i) {
      if (stop != nullptr && stop(stop_context, i) != 0) {
        throw msdc::Failure(MSDC_CANCELLED,
                            "stopped after " + std::to_string(i) + " of " + std::to_string(count) + " texts");
      }
      try {
        held.encode(held.tokenize(prompt, view(texts[i], text_sizes[i])), prompt_tokens, vectors + i * width, width);
      } catch (const msdc::Failure& failure) {
        throw msdc::Failure(failure.status, "text " + std::to_string(i + 1) + ": " + failure.what());
      }
    }
  });
}

msdc_status msdc_count_truncated(const msdc_encoder* encoder, const char* prompt, const char* const* texts,
                                 const size_t* text_sizes, size_t count, size_t* truncated, char* error,
                                 size_t error_size) {
  return guarded(error, error_size, [&] {
    need(encoder != nullptr && truncated != nullptr, "no encoder or no place for the number");
    need(count == 0 || (texts != nullptr && text_sizes != nullptr), "no texts");
    size_t cut = 0;
    for (size_t i = 0; i < count; ++i) cut += encoder->encoder.truncates(prompt, view(texts[i], text_sizes[i]));
    *truncated = cut;
  });
}

msdc_status msdc_encode_ids(msdc_encoder* encoder, const int32_t* ids, size_t count, float* vector, size_t width,
                            char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    check_width(encoder, vector, width);
    need(ids != nullptr, "no ids");
    encoder->encoder.check_count(count);
    encoder->encoder.run(std::vector<int32_t>(ids, ids + count), 0, vector, width);
  });
}

msdc_status msdc_encoder_tokenize(const msdc_encoder* encoder, const char* text, size_t text_size, int32_t* ids,
                                  size_t capacity, size_t* count, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(encoder != nullptr && ids != nullptr && count != nullptr, "no encoder or no place for the ids");
    copy_ids(encoder->encoder.tokenizer().encode(view(text, text_size)), ids, capacity, count);
  });
}

msdc_status msdc_self_test(msdc_encoder* encoder, float promise, msdc_self_test_result* result, char* error,
                           size_t error_size) {
  return guarded(error, error_size, [&] {
    need(encoder != nullptr && result != nullptr, "no encoder or no place for the result");
    *result = {};
    msdc::Encoder& held = encoder->encoder;
    held.manifest().check(msdc::kGoldenFile, true);
    const msdc::Golden golden = msdc::read_golden(held.manifest(), held.runtime());
    const size_t width = static_cast<size_t>(held.manifest().width);
    std::vector<float> vector(width);
    // The golden texts hold the default prompt.
    const size_t prompt_tokens = held.prompt_tokens(nullptr);
    double sum = 0, least = 1;
    for (size_t i = 0; i < golden.texts.size(); ++i) {
      if (held.tokenizer().encode(golden.texts[i]) != golden.ids[i]) ++result->ids_differ;
      held.run(golden.ids[i], prompt_tokens, vector.data());
      const double now = msdc::cosine(vector.data(), &golden.vectors[i * width], width);
      sum += now;
      // Written so that NaN counts as the worst.
      if (!(now >= least)) least = now;
    }
    result->texts = static_cast<int32_t>(golden.texts.size());
    result->min_cosine = static_cast<float>(least);
    const double mean = sum / static_cast<double>(golden.texts.size());
    result->mean_cosine = static_cast<float>(mean);
    if (result->ids_differ != 0) {
      throw msdc::Failure(MSDC_GOLDEN, "self-test: the ids of " + std::to_string(result->ids_differ) +
                                           " golden texts differ from those of the export");
    }
    const double promised = static_cast<double>(promise), single = 1 - kSingleSlack * (1 - promised);
    if (!(mean >= promised) || !(least >= single)) {
      throw msdc::Failure(MSDC_GOLDEN, "self-test: cosines to the golden vectors: mean " + std::to_string(mean) + " (" +
                                           std::to_string(promised) + " is promised), least " + std::to_string(least) +
                                           " (" + std::to_string(single) + ")");
    }
  });
}

msdc_status msdc_tokenizer_open(const char* folder, int32_t check_files, msdc_tokenizer** tokenizer, char* error,
                                size_t error_size) {
  return guarded(error, error_size, [&] {
    need(folder != nullptr && tokenizer != nullptr, "no folder or no place for the tokenizer");
    *tokenizer = nullptr;
    const msdc::Manifest manifest = msdc::Manifest::read(folder);
    manifest.check(manifest.tokenizer_file, check_files != 0);
    *tokenizer = new msdc_tokenizer{manifest, msdc::Tokenizer(manifest)};
  });
}

void msdc_tokenizer_close(msdc_tokenizer* tokenizer) { delete tokenizer; }

int32_t msdc_tokenizer_max_length(const msdc_tokenizer* tokenizer) {
  return tokenizer == nullptr ? 0 : tokenizer->tokenizer.max_length();
}

msdc_status msdc_tokenize(const msdc_tokenizer* tokenizer, const char* text, size_t text_size, int32_t* ids,
                          size_t capacity, size_t* count, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(tokenizer != nullptr && ids != nullptr && count != nullptr, "no tokenizer or no place for the ids");
    copy_ids(tokenizer->tokenizer.encode(view(text, text_size)), ids, capacity, count);
  });
}

float msdc_cosine(const float* a, const float* b, size_t width) { return msdc::fast_cosine(a, b, width); }

msdc_status msdc_top_k(const float* query, const float* vectors, size_t count, size_t width, size_t k, int32_t* rows,
                       float* cosines, size_t* found, char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(query != nullptr && found != nullptr && width > 0, "no query, width, or place for the answer");
    need(count == 0 || vectors != nullptr, "no vectors");
    need(k == 0 || (rows != nullptr && cosines != nullptr), "no place for the rows");
    need(count <= INT32_MAX, "too many vectors");
    const std::vector<msdc::Hit> hits = msdc::top_k(query, vectors, count, width, k);
    *found = hits.size();
    for (size_t i = 0; i < hits.size(); ++i) {
      rows[i] = hits[i].row;
      cosines[i] = hits[i].cosine;
    }
  });
}

const char* msdc_source(const msdc_encoder* encoder) {
  return encoder == nullptr ? nullptr : encoder->encoder.manifest().source.c_str();
}

const char* msdc_name(const msdc_encoder* encoder) {
  return encoder == nullptr ? nullptr : encoder->encoder.manifest().name.c_str();
}

msdc_status msdc_index_document(msdc_encoder* encoder, const char* title, size_t title_size, const char* text,
                                size_t text_size, int32_t titled, msdc_passage passage, void* context, char* error,
                                size_t error_size) {
  return guarded(error, error_size, [&] {
    need(encoder != nullptr && passage != nullptr, "no encoder or no receiver of passages");
    const auto width = static_cast<size_t>(encoder->encoder.manifest().vector_width);
    msdc::index_document(&encoder->encoder, view(title, title_size), view(text, text_size), titled != 0,
                         [&](size_t start, size_t end, float scale, const int8_t* vector) {
                           if (passage(context, start, end, scale, vector, width) != 0) {
                             throw msdc::Failure(MSDC_CANCELLED, "stopped between two passages");
                           }
                         });
  });
}

msdc_status msdc_search_words(const char* text, size_t text_size, msdc_on_text words, void* context, char* error,
                              size_t error_size) {
  return guarded(error, error_size, [&] {
    need(words != nullptr, "no receiver of the words");
    const std::string stored = msdc::index_words(view(text, text_size));
    words(context, stored.data(), stored.size());
  });
}

msdc_status msdc_search_plan(const char* query, size_t query_size, int32_t operators, msdc_on_text plan, void* context,
                             char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(plan != nullptr, "no receiver of the plan");
    const std::string json = msdc::parse_query(view(query, query_size), operators != 0);
    plan(context, json.data(), json.size());
  });
}

msdc_status msdc_search_show(const char* text, size_t text_size, const char* terms, size_t terms_size,
                             const int64_t* starts, const int64_t* ends, const float* cosines, size_t count,
                             int32_t by_cosine, size_t* best, msdc_on_span span, void* context, char* error,
                             size_t error_size) {
  return guarded(error, error_size, [&] {
    need(best != nullptr && span != nullptr, "no place for the best passage or no receiver of spans");
    need(count > 0 && starts != nullptr && ends != nullptr && cosines != nullptr, "no passages");
    std::vector<msdc::Span> passages(count);
    for (size_t i = 0; i < count; ++i) {
      need(starts[i] >= 0 && ends[i] >= 0, "a passage begins or ends before the text");
      passages[i] = {static_cast<size_t>(starts[i]), static_cast<size_t>(ends[i])};
    }
    const std::vector<msdc::TermSpans> spans = msdc::find_terms(view(text, text_size), view(terms, terms_size));
    *best = by_cosine != 0 ? static_cast<size_t>(std::max_element(cosines, cosines + count) - cosines)
                           : msdc::passage_to_show(passages, cosines, spans);
    for (const auto& [start, end] : msdc::merged(spans)) span(context, start, end);
  });
}

msdc_status msdc_file_sha256(const char* path, char digits[65], char* error, size_t error_size) {
  return guarded(error, error_size, [&] {
    need(path != nullptr && digits != nullptr, "no path or no place for the digits");
    if (msdc::file_bytes(path) < 0) msdc::damaged(std::string(path) + " is missing");
    const std::string found = msdc::sha256_file(path);
    std::memcpy(digits, found.c_str(), 65);
  });
}

uint32_t msdc_crc32(uint32_t start, const void* bytes, size_t size) {
  return bytes == nullptr ? start : msdc::crc32(start, static_cast<const uint8_t*>(bytes), size);
}

}  // extern "C"
