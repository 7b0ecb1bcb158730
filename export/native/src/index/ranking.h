// The ranking of a search: the statements of search.sql in the order of msdc/search/ranking.py, which is the oracle.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "database.h"
#include "search_request.h"
#include "vectors.h"

namespace msdc {

// What a query asks for (`parse_query`), with `text` for the model and the `terms` to highlight, one per line.
struct QueryPlan {
  std::string json, text, terms;
  bool excludes = false, has_words = false;
};

QueryPlan read_plan(Database* database, std::string json);

// A document and its parts of the score; none: no part of it.
struct RankedDocument {
  int64_t document = 0;
  double score = 0;
  std::optional<double> cosine, words;
  int64_t match = 0;  // for the order: search.sql, `ranked`
};

class Ranking {
 public:
  // `vectors` are null where the query is not compared with them, and have its cosines otherwise.
  // `source`: the document whose vectors are the query.
  Ranking(Database* database, const PassageVectors* vectors, const SearchRequest& request, QueryPlan plan,
          std::optional<int64_t> source = std::nullopt);

  std::vector<SearchHit> hits();

 private:
  // How a document matches the words of a query: columns of the statement `words`.
  struct WordMatch {
    std::optional<double> words;
    double matched = 0;
    int64_t same = 0, quoted = 0;
  };
  using OnRanked = std::function<bool(const RankedDocument&)>;

  void filter();
  std::vector<int64_t> filtered(const std::string& filter, const std::optional<std::string>& inside);
  void require_columns(const std::string& columns, const char* purpose);
  void find_bonuses();
  std::vector<RankedDocument> page();
  std::unordered_set<int64_t> first_forms();
  std::vector<RankedDocument> page_of_hits();
  std::vector<RankedDocument> page_of_groups(bool* is_full);
  bool is_first_of_its_form(std::unordered_set<int64_t>* forms, int64_t document);
  void find_candidates(size_t most);
  void match_words(size_t most);
  void rank(const OnRanked& on_ranked);
  void rank_in_order(const std::vector<RankedDocument>& documents, const OnRanked& on_ranked);
  std::vector<RankedDocument> ranked(const std::string& matches, const std::vector<std::pair<int64_t, double>>& others);
  SearchHit hit(const RankedDocument& scores);
  size_t passage_of(const std::vector<int64_t>& numbers, const std::vector<Span>& spans, const RankedDocument& scores,
                    const std::vector<TermSpans>& terms) const;

  Database& database_;
  const PassageVectors* vectors_;
  const SearchRequest& request_;
  QueryPlan plan_;
  std::optional<int64_t> source_;
  std::optional<std::vector<int64_t>> allowed_;  // that a filter and excluded words leave, in order
  std::optional<std::string> allowed_json_;
  size_t document_count_ = 0;
  Cosines cosines_;
  std::unordered_map<int64_t, WordMatch> words_;
  std::unordered_map<int64_t, double> bonuses_;
};

}  // namespace msdc
