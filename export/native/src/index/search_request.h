// A search as a caller states it, in JSON, and its hits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "index_file.h"
#include "matches.h"

namespace msdc {

struct SearchRequest {
  std::string query;
  std::optional<std::string> like;  // the id of a document in place of a query
  std::string mode = "both";          // or words, vectors
  std::optional<std::string> filter;  // conditions of the statement `filter`
  size_t top = 5, offset = 0;
  std::optional<double> threshold;  // least cosine
  std::optional<std::string> order;                    // columns of the statement `ordered`
  std::vector<std::pair<std::string, double>> boosts;  // conditions, and what they add to a score
  std::optional<std::string> group;  // a column of which each value has at most `group_size` hits
  size_t group_size = 1;
  bool is_distinct = true;          // entries with the same words are one hit
  bool has_operators = true;
  bool is_utf16 = false;  // offsets in code units of UTF-16, not in code points

  // From JSON; msdc_index.h describes it. Throws Failure(MSDC_BAD_ARGUMENT).
  static SearchRequest read(std::string_view json);
};

struct SearchHit {
  Document document;
  double score = 0;
  std::optional<double> cosine, words;  // none: no part of the score
  size_t start = 0, end = 0;            // of the passage to show
  std::vector<Span> matches;
  int64_t count = 1;  // entries with the same words
};

// Hits as JSON. Throws Failure(MSDC_DAMAGED) for a span outside its text.
std::string json_of(const std::vector<SearchHit>& hits, bool is_utf16, const Database& database);

// A document as a JSON object; its metadata is a string.
std::string json_of(const Document& document);

// A number as JSON has it, whatever the program's locale is.
std::string json_number(double number);

}  // namespace msdc
