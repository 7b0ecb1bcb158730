#include "search_request.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "batch.h"
#include "json.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr double kMost = 1 << 30;  // of hits and of those that are skipped
constexpr int kFilterDepth = 8;    // filters inside of filters
constexpr size_t kMostOrder = 3;   // columns
constexpr size_t kMostBoosts = 16;  // each reads the metadata of all candidates

size_t whole_number(const Json& object, const char* name, size_t least) {
  const double number = object.at(name).number();
  if (number != std::floor(number) || number > kMost) {
    fail(MSDC_BAD_ARGUMENT, std::string("`") + name + "`: expected a whole number up to 2^30");
  }
  if (number < static_cast<double>(least)) {
    char line[96];
    std::snprintf(line, sizeof line, "`%s` %.0f: must be at least %zu", name, number, least);
    fail(MSDC_BAD_ARGUMENT, line);
  }
  return static_cast<size_t>(number);
}

bool is_choice(const std::string& value, std::initializer_list<const char*> choices) {
  for (const char* choice : choices) {
    if (value == choice) return true;
  }
  return false;
}

bool is_plain(const Json& value) { return value.kind() != JsonKind::array && value.kind() != JsonKind::object; }

// SQLite reads JSON up to a NUL character.
void require_value(const Json& value, const std::string& origin) {
  if (value.kind() != JsonKind::text) return;
  if (value.text().find('\0') != value.text().npos) fail(MSDC_BAD_ARGUMENT, origin + ": a value with a NUL character");
}

void require_alternative(const Json& alternative, const std::string& origin) {
  if (is_plain(alternative)) {
    require_value(alternative, origin);
    return;
  }
  size_t sides = 0, nulls = 0;
  if (alternative.kind() == JsonKind::array) {
    for (const Json side : alternative.array()) {
      require_value(side, origin);
      sides += is_plain(side) ? 1 : 3;
      nulls += side.is_null() ? 1 : 0;
    }
  }
  if (sides != 2 || nulls == 2) {
    fail(MSDC_BAD_ARGUMENT,
         origin + ": expected a text, a number, true, false, null, a list of these, or least and most");
  }
}

// Returns the column's name for messages.
std::string require_column(std::string_view column, const char* what) {
  const std::string origin = what + quoted(column);
  if (column.find_first_of(std::string_view("\"\0", 2)) != column.npos) {
    fail(MSDC_BAD_ARGUMENT, origin + ": a column is a name without a double quote or NUL");
  }
  if (!is_valid_utf8(column)) fail(MSDC_BAD_ARGUMENT, origin + ": not valid UTF-8");
  return origin;
}

void require_condition(const Json& condition) {
  std::vector<Json> parts;
  for (const Json part : condition.array()) parts.push_back(part);
  if (parts.size() != 3) {
    fail(MSDC_BAD_ARGUMENT, "where: a condition has a column, alternatives, and whether they are excluded");
  }
  const std::string origin = require_column(parts[0].text(), "filter ");
  bool has_alternative = false;
  for (const Json alternative : parts[1].array()) {
    require_alternative(alternative, origin);
    has_alternative = true;
  }
  if (!has_alternative) fail(MSDC_BAD_ARGUMENT, origin + ": an empty list matches nothing");
  if (parts[2].kind() != JsonKind::boolean) parts[2].integer();
}

// Conditions [column, [alternative, ...], excluded], {"or": [filter, ...]} and {"not": [filter]}. Returns their number.
size_t require_filter(const Json& filter, int depth) {
  if (depth > kFilterDepth) fail(MSDC_BAD_ARGUMENT, "where: more than 8 levels");
  size_t count = 0;
  for (const Json part : filter.array()) {
    ++count;
    if (part.kind() != JsonKind::object) {
      require_condition(part);
      continue;
    }
    for (const auto& [name, filters] : part.object()) {
      if (!is_choice(std::string(name), {"or", "not"})) fail(MSDC_BAD_ARGUMENT, "where: no operator " + quoted(name));
      for (const Json branch : filters.array()) require_filter(branch, depth + 1);
    }
  }
  return count;
}

// A filter for the statements `filter` and `branches`. None for an empty list.
std::optional<std::string> read_filter(std::string_view conditions) {
  const JsonDocument document(std::string(conditions), "where");
  if (require_filter(document.root(), 0) == 0) return std::nullopt;
  return std::string(conditions);
}

// Columns of the statement `ordered`: a minus before one means its largest value first. None for an empty list.
std::optional<std::string> read_order(const Json& columns) {
  std::string out;
  size_t count = 0;
  for (const Json column : columns.array()) {
    std::string_view name = column.text();
    require_column(name, "order ");
    const bool is_descending = !name.empty() && name[0] == '-';
    if (is_descending) name.remove_prefix(1);
    out += (count++ == 0 ? "[" : ",[") + json_quote(name) + (is_descending ? ",1]" : ",0]");
  }
  if (count > kMostOrder) {
    fail(MSDC_BAD_ARGUMENT, "`order` has " + std::to_string(count) + " columns; at most " + std::to_string(kMostOrder));
  }
  if (count == 0) return std::nullopt;
  return "[" + out + "]";
}

// Pairs of a filter and a number.
std::vector<std::pair<std::string, double>> read_boosts(const Json& boost) {
  std::vector<std::pair<std::string, double>> out;
  for (const Json pair : boost.array()) {
    std::vector<Json> parts;
    for (const Json part : pair.array()) parts.push_back(part);
    if (parts.size() != 2) fail(MSDC_BAD_ARGUMENT, "`boost`: expected a pair of a filter and a number");
    std::optional<std::string> filter = read_filter(parts[0].text());
    if (!filter) fail(MSDC_BAD_ARGUMENT, "`boost`: a filter without conditions");
    out.emplace_back(std::move(*filter), parts[1].number());
  }
  if (out.size() > kMostBoosts) {
    fail(MSDC_BAD_ARGUMENT, "`boost` has " + std::to_string(out.size()) + " pairs; at most " + std::to_string(kMostBoosts));
  }
  return out;
}

// Positions in UTF-16 of the characters of a text, and of its end.
std::vector<size_t> utf16_positions(std::string_view text) {
  std::vector<size_t> out{0};
  uint32_t code = 0;
  for (size_t at = 0, bytes; (bytes = decode_utf8(text, at, &code)) != 0; at += bytes) {
    out.push_back(out.back() + (code > 0xFFFF ? 2 : 1));
  }
  return out;
}

size_t character_count(std::string_view text) {
  size_t out = 0;
  uint32_t code = 0;
  for (size_t at = 0, bytes; (bytes = decode_utf8(text, at, &code)) != 0; at += bytes) ++out;
  return out;
}

std::string json_or_null(const std::optional<double>& number) { return number ? json_number(*number) : "null"; }

std::string fields_of(const Document& document) {
  return "\"id\":" + json_quote(document.id) + ",\"text\":" + json_quote(document.text) +
         ",\"title\":" + json_quote(document.title) + ",\"metadata\":" + json_quote(document.metadata);
}

}  // namespace

SearchRequest SearchRequest::read(std::string_view json) {
  return read_argument([&] {
    const JsonDocument document(std::string(json), "search");
    const Json request = document.root();
    SearchRequest out;
    for (const auto& [name, value] : request.object()) {
      if (!is_choice(std::string(name), {"query", "mode", "where", "top", "offset", "threshold", "distinct", "syntax",
                                         "offsets", "order", "boost", "group",
                                         "group_size", "like"})) {
        fail(MSDC_BAD_ARGUMENT, "search: no option " + quoted(name));
      }
    }
    const auto has = [&](const char* name) { return request.has(name) && !request.at(name).is_null(); };
    if (has("like")) {
      if (has("query") || has("mode") || has("syntax")) {
        fail(MSDC_BAD_ARGUMENT, "`like` is in place of `query`, `mode` and `syntax`");
      }
      out.like = request.at("like").text();
    } else {
      out.query = request.at("query").text();
      if (!has_text(out.query)) fail(MSDC_BAD_ARGUMENT, "a query is empty");
    }
    if (!is_valid_utf8(out.like.value_or(out.query))) fail(MSDC_BAD_ARGUMENT, "the query is not valid UTF-8");
    if (has("top")) out.top = whole_number(request, "top", 1);
    if (has("offset")) out.offset = whole_number(request, "offset", 0);
    if (has("threshold")) out.threshold = request.at("threshold").number();
    if (has("distinct")) out.is_distinct = request.at("distinct").boolean();
    const auto choice = [&](const char* name, std::string otherwise, std::initializer_list<const char*> choices) {
      const std::string value = has(name) ? std::string(request.at(name).text()) : std::move(otherwise);
      if (is_choice(value, choices)) return value;
      std::string line;
      for (const char* option : choices) line.append(line.empty() ? "" : ", ").append(option);
      fail(MSDC_BAD_ARGUMENT, std::string("`") + name + "` " + quoted(value) + " is unknown; known: " + line);
    };
    out.mode = choice("mode", out.like ? "vectors" : "both", {"words", "vectors", "both"});
    out.has_operators = choice("syntax", "operators", {"operators", "plain"}) == "operators";
    out.is_utf16 = choice("offsets", "characters", {"characters", "utf16"}) == "utf16";
    if (has("where")) out.filter = read_filter(request.at("where").text());
    if (has("order")) out.order = read_order(request.at("order"));
    if (has("group")) {
      out.group = request.at("group").text();
      require_column(*out.group, "group ");
    }
    if (has("group_size")) out.group_size = whole_number(request, "group_size", 1);
    if (out.group_size > 1 && !out.group) fail(MSDC_BAD_ARGUMENT, "`group_size` is for `group` only");
    if (has("boost")) out.boosts = read_boosts(request.at("boost"));
    return out;
  });
}

std::string json_number(double number) {
  char out[40];  // by SQLite: C's printf follows the locale, and the library's to_chars takes 180 KB
  return sqlite3_snprintf(sizeof out, out, "%!.17g", number);
}

std::string json_of(const Document& document) { return "{" + fields_of(document) + "}"; }

std::string json_of(const std::vector<SearchHit>& hits, bool is_utf16, const Database& database) {
  std::string out = "[";
  for (const SearchHit& hit : hits) {
    const std::vector<size_t> positions = is_utf16 ? utf16_positions(hit.document.text) : std::vector<size_t>();
    const size_t characters = is_utf16 ? positions.size() - 1 : character_count(hit.document.text);
    const auto offset = [&](size_t character) {
      if (character > characters) database.damaged("a passage outside document " + hit.document.id);
      return std::to_string(is_utf16 ? positions[character] : character);
    };
    if (out.size() > 1) out += ",";
    out += "{" + fields_of(hit.document) + ",\"score\":" + json_number(hit.score) +
           ",\"cosine\":" + json_or_null(hit.cosine) + ",\"words\":" + json_or_null(hit.words) +
           ",\"start\":" + offset(hit.start) + ",\"end\":" + offset(hit.end) +
           ",\"count\":" + std::to_string(hit.count) + ",\"matches\":[";
    std::string spans;
    for (const auto& [start, end] : hit.matches) {
      spans += (spans.empty() ? "[" : ",[") + offset(start) + "," + offset(end) + "]";
    }
    out += spans + "]}";
  }
  return out += "]";
}

}  // namespace msdc
