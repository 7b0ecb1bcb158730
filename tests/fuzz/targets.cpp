#include "targets.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "compiled_tokenizer.h"
#include "encoder.h"
#include "failure.h"
#include "files.h"
#include "json.h"
#include "manifest.h"
#include "matches.h"
#include "normalizer.h"
#include "piece_model.h"
#include "request.h"
#include "search.h"
#include "segment.h"
#include "sha256.h"
#include "tokenizer.h"
#include "words.h"

namespace fuzz {

namespace {

// Texts that reach most branches of a tokenizer; short, because a hostile one may cost thousands of steps per byte.
const std::string_view kTexts[] = {
    "",
    "  hello, you\t\xE3\x80\x80two  words \xEF\xAC\x81 ",
    "\xFF\xC3( e\xCC\x81 \xEA\xB0\x80\xE1\x86\xA8 \xF0\x9F\x98\x80",
    "<mask>ba [MASK] der Hund l\xC3\xA4uft don't 1234",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
};

// A plain file with the input, without a disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, content.data(), content.size()) != static_cast<ssize_t>(content.size())) std::abort();
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// A folder of this process; removed at its end.
const std::string& folder() {
  struct Folder {
    Folder() {
      char name[] = "/tmp/msdc-fuzz-XXXXXX";
      if (::mkdtemp(name) == nullptr) std::abort();
      path = name;
    }
    ~Folder() {
      for (const char* file : {"/bundle.json", "/golden.json", "/pieces", "/program"}) ::unlink((path + file).c_str());
      ::rmdir(path.c_str());
    }
    std::string path;
  };
  static const Folder out;
  return out.path;
}

void write_file(const std::string& path, std::string_view content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) std::abort();
  std::fwrite(content.data(), 1, content.size(), file);
  std::fclose(file);
}

template <typename Work>
int answer(Work work) {
  try {
    work();
    return 0;
  } catch (const msdc::Failure& failure) {
    return failure.status;
  } catch (const std::bad_alloc&) {
    return MSDC_MEMORY;
  }
}

size_t walk(const msdc::Json& value) {
  size_t out = 1;
  switch (value.kind()) {
    case msdc::JsonKind::array:
      for (const msdc::Json item : value.array()) out += walk(item);
      break;
    case msdc::JsonKind::object:
      for (const auto& [name, item] : value.object()) out += walk(item) + name.size();
      break;
    case msdc::JsonKind::text: out += value.text().size(); break;
    case msdc::JsonKind::number: out += value.number() > 0; break;
    case msdc::JsonKind::boolean: out += value.boolean(); break;
    case msdc::JsonKind::null: break;
  }
  return out;
}

int json(std::string_view input) {
  return answer([&] {
    const msdc::JsonDocument document{std::string(input), "input"};
    walk(document.root());
    // What readers ask for and do not find: a message with a path.
    answer([&] { document.root().at("key").at("key").integer(); });
  });
}

// The seal is made right, so that damage reaches what lies behind it: anybody can do that.
void write_manifest(std::string text) {
  static constexpr std::string_view kKey = "\"seal\": \"";
  const size_t at = text.find(kKey);
  if (at != std::string::npos && at + kKey.size() + 64 <= text.size()) {
    text.replace(at + kKey.size(), 64, 64, '0');
    text.replace(at + kKey.size(), 64, msdc::sha256_text(text));
  }
  write_file(folder() + "/" + msdc::kManifestFile, text);
}

int manifest(std::string_view input) {
  write_manifest(std::string(input));
  return answer([&] {
    const msdc::Manifest read = msdc::Manifest::read(folder());
    answer([&] { read.check(read.tokenizer_file, true); });
    for (const char* runtime : {"executorch", "onnx"}) answer([&] { read.program_files(runtime); });
  });
}

int golden(std::string_view input) {
  write_file(folder() + "/" + msdc::kGoldenFile, input);
  msdc::Manifest read;
  read.folder = folder();
  read.width = 4;
  return answer([&] { msdc::read_golden(read, "executorch"); });
}

int request(std::string_view input) {
  const MemoryFile file(input);
  return answer([&] { msdc::runner::Request::read(file.path()); });
}

int pieces(std::string_view input) {
  const MemoryFile file(input);
  return answer([&] {
    const msdc::PieceModel model(file.path());
    const msdc::Normalizer normalizer(model, "input");
    for (const std::string_view text : kTexts) {
      answer([&] {
        msdc::WorkBudget budget(text.size());
        const std::string normal = normalizer.normalize(text, &budget);
        if (model.kind() == msdc::PieceModel::Kind::unigram) {
          msdc::segment_unigram(model, normal, &budget);
        } else {
          msdc::segment_bpe(model, normal, &budget);
        }
      });
    }
  });
}

int compiled(std::string_view input) {
  const MemoryFile file(input);
  return answer([&] {
    const msdc::CompiledTokenizer tokenizer(file.path());
    for (const std::string_view text : kTexts) {
      answer([&] {
        msdc::WorkBudget budget(text.size());
        tokenizer.segment(text, &budget);
      });
    }
  });
}

// Numbers that depend on the ids.
class Sums : public msdc::Engine {
 public:
  void run(const std::vector<int32_t>& ids, size_t, float* vector, size_t width) override {
    for (size_t i = 0; i < width; ++i) vector[i] = static_cast<float>(ids[i % ids.size()]) - 20;
  }
};

// A SentencePiece model of letters and a few words, field by field.
std::string letters() {
  std::string out;
  const auto piece = [&out](std::string_view text, char type) {
    const std::string score("\x15\x00\x00\x80\xBF", 5);  // -1
    const std::string inner = "\x0A" + std::string(1, static_cast<char>(text.size())) + std::string(text) + score +
                              "\x18" + std::string(1, type);
    out += "\x0A" + std::string(1, static_cast<char>(inner.size())) + inner;
  };
  piece("<unk>", 2);
  for (const std::string_view control : {"<s>", "</s>"}) piece(control, 3);
  for (char letter = 'a'; letter <= 'z'; ++letter) piece({&letter, 1}, 1);
  for (const std::string_view word : {"\xE2\x96\x81", "\xE2\x96\x81the", ".", "!", "\xE3\x80\x82", "er", "ing"}) piece(word, 1);
  return out;
}

msdc::Encoder& letters_encoder() {
  static msdc::Encoder out = [] {
    const std::string model = letters(), name = folder() + "/pieces", program = folder() + "/program";
    write_file(name, model);
    write_file(program, "");
    write_manifest("{\"seal\": \"" + std::string(64, '0') +
                   "\", \"format\": 1, \"name\": \"letters\", \"width\": 4, \"max_length\": 24, \"vocabulary\": 40, "
                   "\"prompts\": {\"p\": \"the \"}, \"default_prompt\": \"p\", "
                   "\"tokenizer\": {\"kind\": \"sentencepiece\", \"file\": \"pieces\", \"bos_id\": 1, \"eos_id\": 2}, "
                   "\"programs\": {\"executorch\": {\"file\": \"program\", \"style\": \"forward\", \"repeats\": 1}}, "
                   "\"files\": {\"pieces\": {\"sha256\": \"\", \"bytes\": " +
                   std::to_string(model.size()) + "}, \"program\": {\"sha256\": \"\", \"bytes\": 0}}}");
    return msdc::Encoder(folder(), false, "executorch", std::make_unique<Sums>());
  }();
  return out;
}

// The terms of FTS5's expression for any of them, one in each line.
void append_terms(std::string_view expression, std::string* terms) {
  for (size_t at = 0; at < expression.size(); ++at) {
    if (at == 0 || expression.substr(at, 4) == " OR ") terms->append(terms->empty() ? "" : "\n");
    if (expression.substr(at, 4) == " OR ") {
      at += 3;
    } else if (expression[at] != '"') {
      terms->push_back(expression[at]);
    }
  }
}

// A text of any bytes: its tokens and its words.
int text(std::string_view input) {
  return answer([&] {
    letters_encoder().tokenize(nullptr, input);
    msdc::index_words(input);
  });
}

// The plan of a query, and where its terms are in a text: spans in order, apart, and inside the text.
void look_for(std::string_view query, bool operators, std::string_view text) {
  const msdc::JsonDocument plan(msdc::parse_query(query, operators), "plan");
  std::string terms;
  for (const msdc::Json row : plan.root().at("words").array()) {
    for (const msdc::Json cell : row.array()) {
      if (cell.kind() == msdc::JsonKind::text) append_terms(cell.text(), &terms);
    }
  }
  const std::vector<msdc::TermSpans> spans = msdc::find_terms(text, terms);
  size_t last = 0;
  for (const auto& [start, end] : msdc::merged(spans)) {
    if (start < last || end <= start || end > text.size()) std::abort();
    last = end + 1;
  }
  const std::vector<msdc::Span> passages = {{0, text.size() / 2}, {text.size() / 2, text.size()}};
  const float cosines[] = {0.5f, 0.25f};
  if (msdc::passage_to_show(passages, cosines, spans) > 1) std::abort();
}

// A document: the first line is its title. Passages are in order, inside the text, and have a scale where they have a
// vector. The whole is also a query, which is looked for in itself.
int search(std::string_view input) {
  const size_t line = std::min(input.find('\n'), input.size());
  const std::string_view title = input.substr(0, line), rest = input.substr(std::min(line + 1, input.size()));
  return answer([&] {
    size_t last = 0;
    msdc::index_document(&letters_encoder(), title, rest, !title.empty(),
                         [&](size_t start, size_t end, float scale, const int8_t* vector) {
                           if (start < last || end <= start || end > rest.size()) std::abort();
                           if ((scale > 0) != (vector != nullptr)) std::abort();
                           last = end;
                         });
    for (const bool operators : {false, true}) look_for(input, operators, input);
  });
}

const Target kTargets[] = {{"json", json},       {"manifest", manifest}, {"golden", golden},
                           {"request", request}, {"pieces", pieces},     {"compiled", compiled},
                           {"text", text},       {"search", search}};

}  // namespace

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

}  // namespace fuzz
