// A mutation loop that keeps inputs which reach new basic blocks, for machines without libFuzzer:
//   loop fuzz TARGET EXECUTIONS SECONDS SEED BLOCKS_PER_BYTE BLOCKS BYTES_PER_BYTE BYTES FILE...
//   loop cost TARGET FILE...      one line per file: status, bytes of the file, blocks, bytes held at once
// It ends after EXECUTIONS or SECONDS, whichever comes first (0: no limit), and aborts, with the input in ./broke, where an
// input of n bytes costs more than n times the first of its two limits plus the second.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "counters.h"
#include "targets.h"

namespace {

constexpr size_t kMaxBytes = 1u << 17;

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path);
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : chosen_(seed) {}

  std::string operator()(const std::vector<std::string>& inputs) {
    std::string out = inputs[below(inputs.size())];
    for (size_t left = 1 + below(below(4) == 0 ? 16 : 4); left > 0; --left) change(inputs, &out);
    if (out.size() > kMaxBytes) out.resize(kMaxBytes);
    return out;
  }

 private:
  size_t below(size_t end) { return end == 0 ? 0 : chosen_() % end; }

  void change(const std::vector<std::string>& inputs, std::string* out) {
    static const uint32_t kNumbers[] = {0, 1, 2, 16, 127, 128, 255, 256, 4096, 1u << 20, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF};
    static const char kBytes[] = "{}[]\",:\\u0/.-9e \n\x7F\x80\xFF\x0A";
    const size_t at = below(out->size() + 1), rest = out->size() - at;
    switch (below(9)) {
      case 0: if (rest > 0) (*out)[at] = static_cast<char>((*out)[at] ^ 1 << below(8)); break;
      case 1: if (rest > 0) (*out)[at] = static_cast<char>(chosen_()); break;
      case 2: out->erase(at, 1 + below(std::min<size_t>(rest + 1, below(4) == 0 ? 4096 : 16))); break;
      case 3: out->insert(at, out->substr(below(out->size() + 1), 1 + below(64))); break;
      case 4: out->insert(at, 1 + below(below(8) == 0 ? 2048 : 8), kBytes[below(sizeof kBytes - 1)]); break;
      case 5:
      case 6: {  // a number, little-endian, as tables hold them: aligned or not
        const size_t place = below(2) == 0 ? at & ~size_t{3} : at;
        const uint32_t number = kNumbers[below(std::size(kNumbers))] + static_cast<uint32_t>(below(3)) - 1;
        for (size_t i = 0; i < 4 && place + i < out->size(); ++i) (*out)[place + i] = static_cast<char>(number >> 8 * i);
        break;
      }
      case 7: {  // a part of another input
        const std::string& other = inputs[below(inputs.size())];
        const size_t from = below(other.size() + 1), bytes = below(std::min<size_t>(other.size() - from, 256) + 1);
        out->replace(at, below(2) == 0 ? std::min(bytes, rest) : 0, other, from, bytes);
        break;
      }
      case 8: {  // the same part many times
        const std::string part = out->substr(at, 1 + below(24));
        std::string many;
        for (size_t i = below(below(8) == 0 ? 512 : 16); i > 0; --i) many += part;
        out->insert(at, many);
        break;
      }
    }
  }

  std::mt19937_64 chosen_;
};

struct Limits {
  uint64_t blocks_per_byte, blocks, bytes_per_byte, bytes;
};

fuzz::Cost run(const fuzz::Target& target, const std::string& input, int* status) {
  fuzz::start_counting();
  *status = target.run(input);
  return fuzz::cost();
}

void keep_broken(const std::string& input) { std::ofstream("broke", std::ios::binary) << input; }

int fuzz_loop(const fuzz::Target& target, uint64_t executions, double seconds, uint64_t seed, const Limits& limits,
              std::vector<std::string> inputs) {
  std::vector<uint8_t> known(fuzz::kCells, 0);
  Mutator mutate(seed);
  const auto start = std::chrono::steady_clock::now();
  const auto over = [&] {
    return seconds > 0 && std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds;
  };
  const size_t given = inputs.size();
  uint64_t done = 0, taken = 0;
  double worst_blocks = 0, worst_bytes = 0;
  for (; executions == 0 || done < executions; ++done) {
    if (done % 64 == 0 && over()) break;
    const std::string input = done < given ? inputs[done] : mutate(inputs);
    keep_broken(input);
    int status = 0;
    const fuzz::Cost cost = run(target, input, &status);
    taken += status == 0;
    const uint64_t size = input.size();
    if (cost.blocks > limits.blocks_per_byte * size + limits.blocks || cost.peak_bytes > limits.bytes_per_byte * size + limits.bytes) {
      std::fprintf(stderr, "%zu bytes cost %llu blocks and held %zu bytes\n", input.size(),
                   static_cast<unsigned long long>(cost.blocks), cost.peak_bytes);
      std::abort();
    }
    bool grew = false;
    const uint32_t* cells;
    for (size_t i = fuzz::reached_cells(&cells); i-- > 0;) {
      grew = grew || known[cells[i]] == 0;
      known[cells[i]] = 1;
    }
    if (grew && done >= given) inputs.push_back(input);
  }
  size_t reached = 0;
  for (const uint8_t cell : known) reached += cell;
  std::printf("{\"executions\": %llu, \"accepted\": %llu, \"inputs\": %zu, \"blocks\": %zu}\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(taken), inputs.size(), reached);
  std::remove("broke");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string mode = count > 1 ? words[1] : "";
  const fuzz::Target* target = count > 2 ? fuzz::find_target(words[2]) : nullptr;
  if (target == nullptr || (mode != "fuzz" && mode != "cost") || (mode == "fuzz" && count < 11)) {
    std::fprintf(stderr, "see the first lines of loop.cpp\n");
    return 2;
  }
  if (mode == "cost") {
    for (int i = 3; i < count; ++i) {
      const std::string input = read(words[i]);
      int status = 0;
      run(*target, input, &status);  // what is made once, such as tables of the C++ library
      const fuzz::Cost cost = run(*target, input, &status);
      std::printf("%d %zu %llu %zu\n", status, input.size(), static_cast<unsigned long long>(cost.blocks), cost.peak_bytes);
    }
    return 0;
  }
  const auto number = [&](int i) { return std::strtoull(words[i], nullptr, 10); };
  std::vector<std::string> inputs;
  for (int i = 10; i < count; ++i) inputs.push_back(read(words[i]));
  return fuzz_loop(*target, number(3), std::strtod(words[4], nullptr), number(5), {number(6), number(7), number(8), number(9)},
                   inputs);
}
