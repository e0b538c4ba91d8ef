// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target without libFuzzer: on every file of the corpus, and then on mutations of these
// files with a fixed seed. So the targets run with every compiler, and always on the same inputs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

// libFuzzer defines the name and the signature.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr int kMutations = 20'000;
constexpr std::uint64_t kSeed = 1;

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::vector<std::string> read_corpus(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

/// Makes a few random edits: replaces, inserts or erases bytes, or inserts a piece of another
/// input.
std::string mutate(std::string input,
                   const std::vector<std::string>& corpus,
                   std::mt19937_64& random) {
  const auto edits = 1 + random() % 4;
  for (std::uint64_t edit = 0; edit < edits; ++edit) {
    const std::size_t at = input.empty() ? 0 : random() % input.size();
    const auto byte = static_cast<char>(random());
    switch (random() % 4) {
      case 0:
        if (!input.empty()) input[at] = byte;
        break;
      case 1: input.insert(at, 1, byte); break;
      case 2: input.erase(at, 1 + random() % 8); break;
      default: {
        const std::string& other = corpus[random() % corpus.size()];
        const std::size_t from = other.empty() ? 0 : random() % other.size();
        input.insert(at, other, from, random() % 16);
      }
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIRECTORY\n", argv[0]);
    return EXIT_FAILURE;
  }
  const auto corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s holds no inputs\n", argv[1]);
    return EXIT_FAILURE;
  }
  for (const auto& input : corpus) run(input);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < kMutations; ++i)
    run(mutate(corpus[random() % corpus.size()], corpus, random));
  std::printf("%zu inputs and %d mutations passed, seed %llu\n", corpus.size(), kMutations,
              static_cast<unsigned long long>(kSeed));
  return EXIT_SUCCESS;
}
