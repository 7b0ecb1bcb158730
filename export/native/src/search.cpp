#include "search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "utf8.h"

namespace msdc {

namespace {

// Tokens: a shorter sentence joins its neighbour, up to so many together; a title takes at most a third of a passage.
constexpr int64_t kShort = 8, kJoined = 32, kTitleShare = 3;
// Characters of scripts that no model here was taught: the ids they have in common stand for what is unknown.
constexpr std::string_view kProbes[] = {"\xF0\x92\x80\x80", "\xF0\x90\x8E\xA0"};

bool one_of(uint32_t code, std::initializer_list<uint32_t> codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

bool ends_sentence(uint32_t code) { return one_of(code, {'.', '!', '?', 0x2026, 0x61F, 0x964}); }
bool ends_without_blank(uint32_t code) { return one_of(code, {0x3002, 0xFF01, 0xFF1F}); }
bool closes(uint32_t code) { return one_of(code, {'"', '\'', 0x201D, 0x2019, 0xBB, ')', ']'}); }

struct Span {
  size_t start, end;
  int64_t tokens;
};

class Sentences {
 public:
  using Count = std::function<size_t(std::string_view text)>;

  Sentences(Count count, std::string_view text, int64_t most) : count_(std::move(count)), text_(text), most_(most) {
    for (size_t at = 0; at < text.size();) {
      uint32_t code = 0;
      starts_.push_back(at);
      at += decode_utf8(text, at, &code);
      codes_.push_back(code);
    }
    starts_.push_back(text.size());
  }

  std::string_view part(const Span& span) const {
    return text_.substr(starts_[span.start], starts_[span.end] - starts_[span.start]);
  }

  std::vector<Span> passages() {
    find_sentences();
    // Short sentences go to the one before, or to the next at the start, where both fit together.
    std::vector<Span> out;
    for (const Span& span : parts_) {
      const int64_t both = out.empty() ? 0 : span.tokens + out.back().tokens;
      if (!out.empty() && std::min(span.tokens, out.back().tokens) < kShort && both <= std::min(most_, kJoined)) {
        out.back().end = span.end;
        out.back().tokens = both;
      } else {
        out.push_back(span);
      }
    }
    return out;
  }

 private:
  size_t after_spaces(size_t at) const {
    while (at < codes_.size() && is_space(codes_[at])) ++at;
    return at;
  }

  // Sentences end after their marks (and what closes a quotation), and at line ends.
  void find_sentences() {
    size_t start = 0;
    for (size_t at = 0; at < codes_.size();) {
      const uint32_t before = at > start ? codes_[at - 1] : 0;
      size_t closed = at;
      while (ends_sentence(before) && closed < codes_.size() && closes(codes_[closed])) ++closed;
      const size_t next = after_spaces(closed);
      const bool line = std::find(codes_.begin() + static_cast<std::ptrdiff_t>(at),
                                  codes_.begin() + static_cast<std::ptrdiff_t>(next), '\n') !=
                        codes_.begin() + static_cast<std::ptrdiff_t>(next);
      if (next > closed && (ends_sentence(before) || line)) {
        add(start, at);
        start = at = next;
      } else if (ends_without_blank(before)) {
        add(start, at);
        start = at;
      } else {
        at = std::max(at + 1, closed == at ? next : at);
      }
    }
    add(start, codes_.size());
  }

  void add(size_t start, size_t end) {
    while (start < end && is_space(codes_[start])) ++start;
    while (start < end && is_space(codes_[end - 1])) --end;
    if (start < end) fit(start, end);
  }

  // A sentence that is too long is cut at the blank nearest to its middle, and its halves again.
  void fit(size_t start, size_t end) {
    Span span{start, end, 0};
    span.tokens = static_cast<int64_t>(count_(part(span)));
    if (span.tokens <= most_ || end - start < 2) {
      parts_.push_back(span);
      return;
    }
    const size_t middle = (start + end) / 2;
    size_t left = middle, right = middle;
    while (left > start + 1 && codes_[left - 1] != ' ') --left;
    while (right < end - 1 && codes_[right] != ' ') ++right;
    const bool has_left = left > start + 1, has_right = right < end - 1;
    size_t cut = middle;
    if (has_left && (!has_right || middle - (left - 1) <= right - middle)) {
      cut = left - 1;
    } else if (has_right) {
      cut = right;
    }
    fit(start, cut);
    fit(cut, end);
  }

  Count count_;
  std::string_view text_;
  int64_t most_;
  std::vector<uint32_t> codes_;
  std::vector<size_t> starts_;
  std::vector<Span> parts_;
};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  size_t start = 0;
  for (size_t at = 0; at <= text.size();) {
    uint32_t code = ' ';
    const size_t bytes = decode_utf8(text, at, &code);
    if (bytes == 0 || is_space(code)) {
      if (at > start) out.push_back(text.substr(start, at - start));
      start = at + bytes;
    }
    if (bytes == 0) break;
    at += bytes;
  }
  return out;
}

// A title in at most `room` tokens, with ". " behind it; the first half of its words, as often as needed.
std::string shortened(const Tokenizer& tokenizer, std::string_view title, int64_t room) {
  std::vector<std::string_view> words = words_of(title);
  while (!words.empty()) {
    std::string out;
    for (const std::string_view word : words) out.append(out.empty() ? "" : " ").append(word);
    if (static_cast<int64_t>(tokenizer.count(out)) <= room - 2) return out + ". ";
    words.resize(words.size() / 2);
  }
  return "";
}

// Whether most of a text is no prose, as msdc/text/tokenizer.py has it: base64 and hashes, or code without blanks.
bool is_data(std::string_view text) {
  constexpr size_t kEncoded = 40, kCode = 200;
  const auto is_printable = [](char c) { return c > ' ' && c <= '~'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_encoded = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '+' || c == '/' || c == '=';
  };
  // Characters of the runs of this kind, those that are long enough.
  const auto in_runs = [](std::string_view part, const auto& is_kind, size_t least, const auto& count) {
    size_t out = 0;
    for (size_t start = 0, end; start < part.size(); start = end + 1) {
      for (end = start; end < part.size() && is_kind(part[end]);) ++end;
      if (end - start >= least) out += count(part.substr(start, end - start));
    }
    return out;
  };
  const size_t data = in_runs(text, is_printable, kEncoded, [&](std::string_view run) {
    if (run.size() >= kCode && run.find("://") == run.npos) return run.size();
    return in_runs(run, is_encoded, kEncoded, [&](std::string_view encoded) {
      return std::any_of(encoded.begin(), encoded.end(), is_digit) ? encoded.size() : 0;
    });
  });
  const auto starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return 2 * data > static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

}  // namespace

Reader::Reader(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      special_(tokenizer.encode("")),
      first_probe_(tokenizer.encode(kProbes[0])),
      second_probe_(tokenizer.encode(kProbes[1])) {}

bool Reader::reads(std::string_view text) const {
  if (is_data(text)) return false;
  const auto in = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  size_t all = 0, unknown = 0;
  for (const int32_t id : tokenizer_.encode(text)) {
    if (in(special_, id)) continue;
    ++all;
    unknown += in(first_probe_, id) && in(second_probe_, id) ? 1 : 0;
  }
  return 2 * unknown <= all;
}

// Tokens that a passage may have after the prompt.
int64_t most_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  return static_cast<int64_t>(tokenizer.max_length()) -
         static_cast<int64_t>(tokenizer.encode("").size() + tokenizer.count(prompt));
}

std::string title_prefix(const Tokenizer& tokenizer, const std::string& prompt, std::string_view title, bool titled) {
  return shortened(tokenizer, title, titled ? most_tokens(tokenizer, prompt) / kTitleShare : 0);
}

std::vector<TextPassage> document_passages(const Tokenizer& tokenizer, const std::string& prompt, std::string_view title,
                                           std::string_view text, bool titled) {
  const int64_t most = most_tokens(tokenizer, prompt);
  const int64_t room = titled ? most / kTitleShare : 0;
  const std::string first = title_prefix(tokenizer, prompt, title, titled);
  Sentences sentences([&](std::string_view part) { return tokenizer.count(part); }, text, most - room);
  std::vector<TextPassage> out;
  for (const Span& span : sentences.passages()) {
    out.push_back({span.start, span.end, first + std::string(sentences.part(span))});
  }
  return out;
}

std::vector<std::pair<size_t, size_t>> word_passages(std::string_view text, int64_t most) {
  Sentences sentences([](std::string_view part) { return words_of(part).size(); }, text, most);
  std::vector<std::pair<size_t, size_t>> out;
  for (const Span& span : sentences.passages()) out.emplace_back(span.start, span.end);
  return out;
}

float quantize(const float* vector, size_t width, int8_t* codes) {
  double square = 0;
  for (size_t i = 0; i < width; ++i) square += static_cast<double>(vector[i]) * vector[i];
  const float norm = static_cast<float>(std::sqrt(square));
  if (norm == 0) return 0;
  float most = 0;
  for (size_t i = 0; i < width; ++i) most = std::max(most, std::fabs(vector[i] / norm));
  const float step = most / 127;
  float sum = 0;  // of whole numbers below 2^24: exact
  for (size_t i = 0; i < width; ++i) {
    const float code = std::nearbyint(vector[i] / norm / step);
    codes[i] = static_cast<int8_t>(code);
    sum += code * code;
  }
  return 1 / std::sqrt(sum);
}

void index_document(Encoder* encoder, std::string_view title, std::string_view text, bool titled,
                    const OnPassage& on_passage) {
  const Manifest& manifest = encoder->manifest();
  const Reader reader(encoder->tokenizer());
  const size_t prompt_tokens = encoder->prompt_tokens(nullptr);
  std::vector<float> vector(static_cast<size_t>(manifest.vector_width));
  std::vector<int8_t> codes(vector.size());
  for (const TextPassage& part :
       document_passages(encoder->tokenizer(), manifest.default_prompt, title, text, titled)) {
    float scale = 0;
    if (reader.reads(part.text)) {
      encoder->encode(encoder->tokenize(nullptr, part.text), prompt_tokens, vector.data(), vector.size());
      scale = quantize(vector.data(), vector.size(), codes.data());
    }
    on_passage(part.start, part.end, scale, scale == 0 ? nullptr : codes.data());
  }
}

void int8_cosines(const float* query, size_t width, const int8_t* rows, const float* scales, size_t count,
                  float* cosines) {
  double square = 0;
  for (size_t i = 0; i < width; ++i) square += static_cast<double>(query[i]) * query[i];
  const float norm = static_cast<float>(std::sqrt(square));
  constexpr size_t kLanes = 16;  // independent sums, which compilers turn into SIMD code
  for (size_t row = 0; row < count; ++row) {
    const int8_t* codes = rows + row * width;
    float sums[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += static_cast<float>(codes[i + lane]) * query[i + lane];
    }
    for (; i < width; ++i) sums[0] += static_cast<float>(codes[i]) * query[i];
    float dot = 0;
    for (const float sum : sums) dot += sum;
    cosines[row] = norm == 0 ? 0 : dot / norm * scales[row];
  }
}

uint32_t crc32(uint32_t start, const uint8_t* bytes, size_t size) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> entries;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t entry = byte;
      for (int bit = 0; bit < 8; ++bit) entry = entry >> 1 ^ (entry & 1 ? 0xEDB88320u : 0u);
      entries[byte] = entry;
    }
    return entries;
  }();
  uint32_t out = ~start;
  for (size_t i = 0; i < size; ++i) out = out >> 8 ^ table[(out ^ bytes[i]) & 0xFF];
  return ~out;
}

}  // namespace msdc
