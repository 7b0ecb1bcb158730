// The normalizer of a compiled tokenizer: a sequence of rules over UTF-8, as Hugging Face's `tokenizers` applies them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiled_file.h"
#include "pattern.h"

namespace msdc {

// The tables that rules and splits share, opened once.
struct TextTables {
  std::vector<CharacterSet> sets;
  std::vector<CharacterMap> maps;
  std::vector<Pattern> patterns;
};

// SentencePiece's precompiled character map as `tokenizers` applies it: to whole grapheme clusters under six bytes, else
// to single characters; the shortest matching rule wins and replaces all of what was looked up.
class ClusterMap {
 public:
  // Throws Failure(MSDC_DAMAGED) for a broken map.
  explicit ClusterMap(std::string_view charsmap);
  ClusterMap() = default;

  // What `part` becomes; false where no rule matches.
  bool find(std::string_view part, std::string_view* out) const;

 private:
  uint32_t unit(size_t index) const;

  Words trie_;
  std::string_view replacements_;
};

class TextRules {
 public:
  // Reads the rules from `words`; `tables` must outlive this. Throws Failure(MSDC_DAMAGED).
  TextRules(WordReader* words, const CompiledFile& file, const TextTables& tables);

  std::string apply(std::string text, WorkBudget* budget) const;

 private:
  enum class Op : uint32_t { map = 1, form = 2, literal = 3, pattern = 4, prepend = 5, strip = 6, clusters = 7 };
  struct Rule {
    Op op = Op::map;
    uint32_t a = 0, b = 0, c = 0, d = 0;  // meaning by operation, see the constructor
    std::string_view from;
    std::string_view to;
    ClusterMap clusters;
    PairTable pairs;
  };

  std::string form(const Rule& rule, std::string_view text, WorkBudget* budget) const;
  std::string clusters(const Rule& rule, std::string_view text, WorkBudget* budget) const;
  uint32_t combining_class(const Rule& rule, uint32_t code) const;

  const TextTables& tables_;
  std::vector<Rule> rules_;
};

}  // namespace msdc
