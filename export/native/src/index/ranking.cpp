#include "ranking.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>
#include <utility>

#include "batch.h"
#include "failure.h"
#include "json.h"
#include "search.h"

namespace msdc {

namespace {

constexpr size_t kNearest = 100;  // documents without a word of the query that are ranked first: most pages need no others
constexpr int64_t kSnippetWords = 32;  // of the passage that is shown of a text that was not encoded

std::string json_list(const std::vector<int64_t>& numbers) {
  std::string out = "[";
  for (const int64_t number : numbers) out.append(out.size() > 1 ? "," : "").append(std::to_string(number));
  return out += "]";
}

std::vector<int64_t> documents_of(const Cosines& cosines) {
  std::vector<int64_t> out;
  for (const auto& entry : cosines) out.push_back(entry.first);
  return out;
}

}  // namespace

QueryPlan read_plan(Database* database, std::string json) {
  QueryPlan out;
  database->each("plan", {json}, [&](const Row& row) {
    out.text = row.text(0);
    out.excludes = row.integer(1) != 0;
    out.has_words = row.integer(2) != 0;
    out.terms = row.text(3);
  });
  out.json = std::move(json);
  return out;
}

Ranking::Ranking(Database* database, const PassageVectors* vectors, const SearchRequest& request, QueryPlan plan,
                 std::optional<int64_t> source)
    : database_(*database), vectors_(vectors), request_(request), plan_(std::move(plan)), source_(source) {}

std::vector<SearchHit> Ranking::hits() {
  if (request_.order) require_columns(*request_.order, "order");
  if (request_.group) require_columns("[[" + json_quote(*request_.group) + "]]", "group");
  filter();
  std::vector<SearchHit> out;
  for (const RankedDocument& scores : page()) {
    out.push_back(hit(scores));
    if (request_.is_distinct) {
      out.back().count = database_.integer("equal", {scores.document, allowed_json_}).value_or(0);
    }
  }
  return out;
}

// As many are ranked for every page of the first 1,000 hits, so that pages agree; more where these are of too few groups.
std::vector<RankedDocument> Ranking::page() {
  size_t most = search_constants().candidates;
  while (most < request_.offset + request_.top) most *= 4;
  document_count_ = static_cast<size_t>(database_.integer("count").value_or(0));
  while (true) {
    find_candidates(most);
    find_bonuses();
    if (!request_.group) return page_of_hits();
    bool is_full = false;
    std::vector<RankedDocument> out = page_of_groups(&is_full);
    if (is_full || most >= document_count_) return out;
    most *= 4;
    cosines_.clear();
    words_.clear();
    bonuses_.clear();
  }
}

// Documents with the words of the source are no hits.
std::unordered_set<int64_t> Ranking::first_forms() {
  if (!source_ || !request_.is_distinct) return {};
  return {database_.integer("form", {*source_}).value_or(0)};
}

// Of documents with the same words only the first is a hit.
bool Ranking::is_first_of_its_form(std::unordered_set<int64_t>* forms, int64_t document) {
  return !request_.is_distinct || forms->insert(database_.integer("form", {document}).value_or(0)).second;
}

std::vector<RankedDocument> Ranking::page_of_hits() {
  std::vector<RankedDocument> out;
  std::unordered_set<int64_t> forms = first_forms();
  size_t position = 0;
  rank([&](const RankedDocument& scores) {
    if (!is_first_of_its_form(&forms, scores.document)) return true;
    if (position++ >= request_.offset) out.push_back(scores);
    return out.size() < request_.top;
  });
  return out;
}

// `is_full`: whether there are as many groups. A document without a value is one.
std::vector<RankedDocument> Ranking::page_of_groups(bool* is_full) {
  std::vector<RankedDocument> out;
  std::unordered_set<int64_t> forms = first_forms();
  std::unordered_map<std::string, size_t> numbers;  // of groups, by their value
  std::unordered_map<size_t, size_t> sizes;
  size_t groups = 0, full = 0;
  database_.run("cells");
  rank([&](const RankedDocument& scores) {
    if (!is_first_of_its_form(&forms, scores.document)) return true;
    const std::optional<std::string> key = database_.text("group", {scores.document, request_.group});
    const auto [entry, is_new] = numbers.emplace(key ? *key : std::to_string(scores.document), groups);
    groups += is_new ? 1 : 0;
    const size_t number = entry->second;
    if (number >= request_.offset && number - request_.offset < request_.top && sizes[number] < request_.group_size) {
      full += ++sizes[number] == request_.group_size ? 1 : 0;
      out.push_back(scores);
    }
    *is_full = groups >= request_.offset + request_.top;
    return !*is_full || full < request_.top;
  });
  return out;
}

void Ranking::filter() {
  if (!request_.filter && !plan_.excludes) return;
  allowed_ = filtered(request_.filter.value_or("[]"), std::nullopt);
  allowed_json_ = json_list(*allowed_);
}

// The documents that a filter and the excluded words leave, of all or of those `inside` (ids as JSON), in order.
std::vector<int64_t> Ranking::filtered(const std::string& filter, const std::optional<std::string>& inside) {
  std::vector<int64_t> out;
  database_.each("filter", {filter, plan_.json, inside}, [&](const Row& row) { out.push_back(row.integer(0)); });
  if (out.empty()) require_columns(filter, "filter");
  std::sort(out.begin(), out.end());
  struct Branch {
    std::string name;
    std::vector<std::string> parts;
  };
  std::map<int64_t, Branch> branches;
  database_.each("branches", {filter}, [&](const Row& row) {
    Branch& branch = branches[row.integer(0)];
    branch.name = row.text(1);
    branch.parts.push_back(row.text(2));
  });
  for (const auto& [number, branch] : branches) {
    std::unordered_set<int64_t> rows;
    for (const std::string& part : branch.parts) {
      for (const int64_t row : filtered(part, inside)) rows.insert(row);
    }
    const bool includes = branch.name == "or";
    const auto is_left_out = [&](int64_t row) { return (rows.count(row) != 0) != includes; };
    out.erase(std::remove_if(out.begin(), out.end(), is_left_out), out.end());
  }
  return out;
}

void Ranking::require_columns(const std::string& columns, const char* purpose) {
  database_.each("unknown", {columns}, [&](const Row& row) {
    fail(MSDC_BAD_ARGUMENT,
         "no column " + quoted(row.bytes(0)) + " to " + purpose + " by (columns: " + row.text(1) + ")");
  });
}

// What filters add to the scores of the candidates.
void Ranking::find_bonuses() {
  if (request_.boosts.empty()) return;
  std::vector<int64_t> documents = documents_of(cosines_);
  for (const auto& entry : words_) documents.push_back(entry.first);
  const std::string inside = json_list(documents);
  for (const auto& [filter, bonus] : request_.boosts) {
    for (const int64_t document : filtered(filter, inside)) bonuses_[document] += bonus;
  }
  const auto words = request_.mode == "vectors" ? std::nullopt : std::optional<double>(0);
  for (const auto& entry : bonuses_) words_.try_emplace(entry.first, WordMatch{words});
}

// The documents nearest by vectors and by words: at most `most` of each, with an order all by words.
void Ranking::find_candidates(size_t most) {
  if (vectors_ != nullptr) cosines_ = vectors_->nearest(most, allowed_ ? &*allowed_ : nullptr);
  if (source_) cosines_.erase(*source_);
  if (request_.mode == "vectors") return;
  match_words(request_.order ? std::max(most, document_count_) : most);
  if (vectors_ == nullptr) return;
  for (const auto& [document, match] : words_) {
    const float* cosine = vectors_->cosine_of(document);
    if (cosine != nullptr) cosines_[document] = *cosine;
  }
}

// Where no document matches, the words of the index that are similar to those of the query are looked for, if the query is
// short or vectors do not answer it.
void Ranking::match_words(size_t most) {
  if (!plan_.has_words) return;
  const std::string near = json_list(documents_of(cosines_));
  const auto match = [&] {
    database_.each("words",
                   {plan_.json, allowed_json_, static_cast<int64_t>(most), near, static_cast<int64_t>(document_count_)},
                   [&](const Row& row) {
                     words_[row.integer(0)] = {row.real(1), row.real(2), row.integer(3), row.integer(4)};
                   });
  };
  match();
  if (!words_.empty()) return;
  database_.run("vocabulary");
  const int64_t has_vectors = !cosines_.empty();
  const std::optional<std::string> similar = database_.text("similar", {plan_.json, has_vectors, allowed_json_});
  if (!similar) return;
  plan_ = read_plan(&database_, *similar);
  match();
}

// Those without a word are ranked by their cosine: the nearest of them decide alone, down to the score of the last.
void Ranking::rank(const OnRanked& on_ranked) {
  std::string matches = "[";
  for (const auto& [document, match] : words_) {
    const auto cosine = cosines_.find(document);
    matches += (matches.size() > 1 ? ",[" : "[") + std::to_string(document) + "," +
               (cosine == cosines_.end() ? "null" : json_number(cosine->second)) + "," +
               (match.words ? json_number(*match.words) : "null") + "," + json_number(match.matched) + "," +
               std::to_string(match.same) + "," + std::to_string(match.quoted);
    const auto bonus = bonuses_.find(document);
    matches += "," + (bonus == bonuses_.end() ? "0" : json_number(bonus->second)) + "]";
  }
  matches += "]";
  std::vector<std::pair<int64_t, double>> others;
  for (const auto& entry : cosines_) {
    if (words_.count(entry.first) == 0) others.push_back(entry);
  }
  if (request_.order) {
    rank_in_order(ranked(matches, others), on_ranked);
    return;
  }
  size_t count = 0;
  if (others.size() > 2 * kNearest) {
    std::vector<std::pair<int64_t, double>> nearest = others;
    const auto is_nearer = [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    };
    std::nth_element(nearest.begin(), nearest.begin() + kNearest, nearest.end(), is_nearer);
    nearest.resize(kNearest);
    const int64_t last = std::max_element(nearest.begin(), nearest.end(), is_nearer)->first;
    const std::vector<RankedDocument> order = ranked(matches, nearest);
    // A threshold that drops the last drops all that are further away.
    double certain = -HUGE_VAL;
    for (const RankedDocument& entry : order) {
      if (entry.document == last) certain = entry.score + 1e-4 * std::fabs(entry.score);  // they have six digits
    }
    for (const RankedDocument& entry : order) {
      if (entry.score <= certain) break;
      ++count;
      if (!on_ranked(entry)) return;
    }
  }
  for (const RankedDocument& entry : ranked(matches, others)) {
    if (count > 0) {
      --count;
    } else if (!on_ranked(entry)) {
      return;
    }
  }
}

void Ranking::rank_in_order(const std::vector<RankedDocument>& documents, const OnRanked& on_ranked) {
  std::string entries = "[";
  for (const RankedDocument& entry : documents) {
    entries += (entries.size() > 1 ? ",[" : "[") + std::to_string(entry.document) + "," + std::to_string(entry.match) + "]";
  }
  entries += "]";
  database_.run("cells");
  database_.each("ordered", {entries, request_.order},
                 [&](const Row& row) { return on_ranked(documents[static_cast<size_t>(row.integer(0))]); });
}

std::vector<RankedDocument> Ranking::ranked(const std::string& matches,
                                            const std::vector<std::pair<int64_t, double>>& others) {
  std::string cosines = "{";
  for (const auto& [document, cosine] : others) {
    cosines += (cosines.size() > 1 ? ",\"" : "\"") + std::to_string(document) + "\":" + json_number(cosine);
  }
  cosines += "}";
  const Argument threshold = request_.threshold ? Argument(*request_.threshold) : Argument(nullptr);
  const auto part = [](const Row& row, int column) {
    return row.is_null(column) ? std::nullopt : std::optional<double>(row.real(column));
  };
  std::vector<RankedDocument> out;
  database_.each("ranked", {matches, cosines, request_.mode, threshold}, [&](const Row& row) {
    out.push_back({row.integer(0), row.real(1), part(row, 2), part(row, 3), row.integer(4)});
  });
  return out;
}

SearchHit Ranking::hit(const RankedDocument& scores) {
  SearchHit out;
  out.score = scores.score;
  out.cosine = scores.cosine;
  out.words = scores.words;
  bool is_stored = false;
  database_.each("hit", {scores.document}, [&](const Row& row) {
    out.document = read_document(database_, row);
    is_stored = true;
  });
  if (!is_stored) database_.damaged("document " + std::to_string(scores.document));
  std::vector<int64_t> numbers;
  std::vector<Span> spans;
  database_.each("passages_of", {scores.document}, [&](const Row& row) {
    const int64_t start = row.integer(1), end = row.integer(2);
    if (crc_of_passage(scores.document, start, end) != row.integer(3) || start < 0 || end < start) {
      database_.damaged("a passage of document " + out.document.id);
    }
    numbers.push_back(row.integer(0));
    spans.emplace_back(static_cast<size_t>(start), static_cast<size_t>(end));
  });
  if (spans.empty()) {  // not encoded
    spans = word_passages(out.document.text, kSnippetWords);
    numbers.resize(spans.size());
  }
  const std::vector<TermSpans> terms = find_terms(out.document.text, plan_.terms);
  std::tie(out.start, out.end) = spans[passage_of(numbers, spans, scores, terms)];
  out.matches = merged(terms);
  return out;
}

size_t Ranking::passage_of(const std::vector<int64_t>& numbers, const std::vector<Span>& spans,
                           const RankedDocument& scores, const std::vector<TermSpans>& terms) const {
  const bool by_cosine = request_.mode == "vectors";
  std::vector<float> cosines;
  for (const int64_t number : numbers) {
    const float* cosine = scores.cosine && vectors_ != nullptr
                              ? vectors_->cosine_of_passage(scores.document, number)
                              : nullptr;
    cosines.push_back(cosine != nullptr ? *cosine : by_cosine ? -2.0f : 0.0f);
  }
  if (!by_cosine) return passage_to_show(spans, cosines.data(), terms);
  return static_cast<size_t>(std::max_element(cosines.begin(), cosines.end()) - cosines.begin());
}

}  // namespace msdc
