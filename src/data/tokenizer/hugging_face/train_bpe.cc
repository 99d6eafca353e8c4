#include "data/tokenizer/hugging_face/train_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "base/units.h"
#include "base/utf8.h"
#include "data/tokenizer/stages/regex.h"
#include "data/tokenizer/vocabulary.h"

namespace spillway::data {
namespace {

using nlohmann::json;

constexpr i64 kLargestVocabulary = i64{1} << 24;
constexpr i64 kLeastCount = 2;

constexpr u32 kNoPlace = ~u32{0};

// The memory that a distinct word takes until the last merge. A word takes kBytesOfAWord for its text and count.
// Each of its bytes takes kBytesOfAByte for a symbol and for that symbol's entries in the lists of pairs.
constexpr i64 kBytesOfAWord = 128, kBytesOfAByte = 32;

/// A symbol of a word: its token, the index of its word, and the indices of its left and right neighbours. A symbol that was merged into
/// the one before it has no token.
struct TrainingSymbol {
  i32 token;
  u32 word, left, right;
};

/// Two neighbouring tokens; ordered by the left id, then by the right one.
using Pair = std::pair<i32, i32>;
struct PairHash {
  size_t operator()(const Pair& pair) const {
    const u64 key = (static_cast<u64>(static_cast<u32>(pair.first)) << 32 | static_cast<u32>(pair.second)) * 0x9E3779B97F4A7C15u;
    return static_cast<size_t>(key ^ key >> 32);
  }
};

/// Counts how often a pair occurs, and lists the indices, in ascending order, of symbols that may be its left symbol. The list is
/// complete as soon as both tokens of the pair exist: later merges add no occurrences.
struct PairUse {
  i64 count = 0;
  std::vector<u32> places;
};

/// An entry of the queue of pairs, with the count that the pair had when the entry was made. The pair's present count is never larger.
struct PairOffer {
  i64 count;
  Pair pair;
  bool operator<(const PairOffer& other) const { return count != other.count ? count < other.count : other.pair < pair; }
};

class Training {
 public:
  explicit Training(const BpeTraining& training) : training_(training) {
    std::vector<std::pair<char32_t, unsigned char>> alphabet;
    for (unsigned i = 0; i < 256; ++i) {
      size_t at = 0;
      alphabet.emplace_back(next_code(byte_character(static_cast<char>(i)), at), static_cast<unsigned char>(i));
    }
    std::ranges::sort(alphabet);
    for (const std::string& token : training.special_tokens) add_token(token);
    for (const auto& [code, byte] : alphabet) of_byte_[byte] = add_token(utf8_of(code));
  }

  void read(const std::function<bool(std::string&)>& next) {
    const Regex pattern(training_.pattern, "[train-vocab] the pattern");
    std::unordered_map<std::string, i64> counts;
    for (std::string text; next(text);) {
      if (!is_utf8(text)) text = replace_broken_utf8(text);
      size_t behind = 0;
      const auto word = [&](size_t from, size_t to) {
        if (from < to && counts[text.substr(from, to - from)]++ == 0) count_memory(to - from);
      };
      Regex::Walk walk(pattern, text);
      while (walk.next()) {
        word(behind, walk.begin());
        word(walk.begin(), walk.end());
        behind = walk.end();
      }
      word(behind, text.size());
    }
    for (const auto& [text, count] : counts) add_word(text, count);
  }

  void merge_all() {
    std::priority_queue<PairOffer> offers;
    for (u32 at = 0; at < symbols_.size(); ++at) {
      const TrainingSymbol& symbol = symbols_[at];
      if (symbol.right != kNoPlace) change({symbol.token, symbols_[symbol.right].token}, counts_[symbol.word], at);
    }
    for (const auto& [pair, use] : uses_) offers.push({use.count, pair});
    while (static_cast<i64>(tokens_.size()) < training_.vocabulary && !offers.empty()) {
      const PairOffer best = offers.top();
      offers.pop();
      const i64 count = uses_[best.pair].count;
      if (count < kLeastCount) continue;
      if (count != best.count) {
        offers.push({count, best.pair});
        continue;
      }
      for (const Pair& pair : merge(best.pair)) offers.push({uses_[pair].count, pair});
    }
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<Pair>& merges() const { return merges_; }

 private:
  i32 add_token(const std::string& text) {
    const auto [entry, fresh] = ids_.emplace(text, static_cast<i32>(tokens_.size()));
    if (fresh) tokens_.push_back(text);
    return entry->second;
  }

  void count_memory(size_t word) {
    word_bytes_ += static_cast<i64>(word);
    taken_ += kBytesOfAWord + static_cast<i64>(word) * kBytesOfAByte;
    if (taken_ <= training_.memory_bytes) return;
    throw Error(
        ErrorCode::refused,
        fmt::format(
            "[train-vocab] expected distinct words that fit into {} of memory, got more than {} of distinct words: train on fewer texts",
            format_bytes(training_.memory_bytes), format_bytes(word_bytes_)));
  }

  void add_word(std::string_view text, i64 count) {
    if (symbols_.size() + text.size() >= kNoPlace) {
      throw Error(ErrorCode::data, "[train-vocab] expected less than 4 GiB of distinct words, got more; train on fewer texts");
    }
    const auto first = static_cast<u32>(symbols_.size()), behind = first + static_cast<u32>(text.size());
    for (u32 at = first; at < behind; ++at) {
      const auto byte = static_cast<unsigned char>(text[at - first]);
      symbols_.push_back(
          {of_byte_[byte], static_cast<u32>(counts_.size()), at == first ? kNoPlace : at - 1, at + 1 == behind ? kNoPlace : at + 1});
    }
    counts_.push_back(count);
  }

  void change(const Pair& pair, i64 by, u32 place) {
    PairUse& use = uses_[pair];
    use.count += by;
    if (by > 0) use.places.push_back(place);
  }

  /// Makes a token of the pair and replaces the pair by that token in all words. Returns the pairs that then occur more often than before.
  std::vector<Pair> merge(const Pair& pair) {
    const i32 id = add_token(tokens_[static_cast<size_t>(pair.first)] + tokens_[static_cast<size_t>(pair.second)]);
    merges_.push_back(pair);
    const std::vector<u32> places = std::move(uses_[pair].places);
    uses_.erase(pair);
    std::vector<Pair> grown;
    for (const u32 at : places) merge_at(at, pair, id, grown);
    uses_.erase(pair);  // the pair is erased again, because merges at neighbouring places may have added it
    std::ranges::sort(grown);
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    std::erase(grown, pair);
    return grown;
  }

  void merge_at(u32 at, const Pair& pair, i32 id, std::vector<Pair>& grown) {
    TrainingSymbol& symbol = symbols_[at];
    if (symbol.token != pair.first || symbol.right == kNoPlace || symbols_[symbol.right].token != pair.second) return;
    const i64 count = counts_[symbol.word];
    TrainingSymbol& second = symbols_[symbol.right];
    if (symbol.left != kNoPlace) {
      const i32 left = symbols_[symbol.left].token;
      change({left, pair.first}, -count, symbol.left);
      change({left, id}, count, symbol.left);
      grown.push_back({left, id});
    }
    if (second.right != kNoPlace) {
      TrainingSymbol& behind = symbols_[second.right];
      change({pair.second, behind.token}, -count, at);
      change({id, behind.token}, count, at);
      grown.push_back({id, behind.token});
      behind.left = at;
    }
    symbol.token = id;
    symbol.right = second.right;
    second.token = kNoToken;
  }

  const BpeTraining& training_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, i32> ids_;
  i32 of_byte_[256] = {};
  std::vector<TrainingSymbol> symbols_;  // the symbols of all distinct words, one word after the other
  std::vector<i64> counts_;              // the number of occurrences of each word
  std::unordered_map<Pair, PairUse, PairHash> uses_;
  std::vector<Pair> merges_;
  i64 taken_ = 0, word_bytes_ = 0;  // the bytes of memory and the bytes of text that all distinct words take together
};

void check_training(const BpeTraining& training) {
  const i64 least = 256 + static_cast<i64>(training.special_tokens.size());
  if (training.vocabulary < least || training.vocabulary > kLargestVocabulary) {
    throw Error(ErrorCode::usage, "[train-vocab] expected a vocabulary from " + std::to_string(least) +
                                      " (the bytes and special tokens) to " + std::to_string(kLargestVocabulary) + ", got " +
                                      std::to_string(training.vocabulary));
  }
  std::vector<std::string> sorted = training.special_tokens;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) {
    const bool of_a_byte = bytes_of_characters(sorted[i]).value_or("").size() == 1;
    if (sorted[i].empty() || !is_utf8(sorted[i]) || of_a_byte || (i > 0 && sorted[i] == sorted[i - 1])) {
      throw Error(ErrorCode::usage, "[train-vocab] expected distinct special tokens in UTF-8 with more than one character, got " +
                                        json(sorted[i]).dump(-1, ' ', true, json::error_handler_t::replace));
    }
  }
}

json split_of(const std::string& pattern) {
  const bool gpt2 = pattern == kGpt2Pattern;
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", gpt2}};
  if (gpt2) return bytes;
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
}

json added_tokens_of(const std::vector<std::string>& special_tokens) {
  json added = json::array();
  for (const std::string& token : special_tokens) {
    added.push_back({{"id", added.size()},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return added;
}

// Returns the files of a byte-level BPE. The id of a token is its index in `tokens`.
TrainedTokenizer files_of(const std::vector<std::string>& tokens, json merges, const std::vector<std::string>& special_tokens,
                          const json& pre_tokenizer) {
  json vocabulary = json::object();
  for (size_t id = 0; id < tokens.size(); ++id) vocabulary[tokens[id]] = id;
  const json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", std::move(vocabulary)},
                      {"merges", std::move(merges)}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  const json file = {{"version", "1.0"},        {"truncation", nullptr},
                     {"padding", nullptr},      {"added_tokens", added_tokens_of(special_tokens)},
                     {"normalizer", nullptr},   {"pre_tokenizer", pre_tokenizer},
                     {"post_processor", bytes}, {"decoder", bytes},
                     {"model", model}};
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (!special_tokens.empty()) config["eos_token"] = special_tokens[0];
  return {file.dump() + "\n", config.dump(1) + "\n", static_cast<i64>(tokens.size())};
}

}  // namespace

TrainedTokenizer train_byte_level_bpe(const std::function<bool(std::string& text)>& next, const BpeTraining& asked) {
  check_training(asked);
  Training training(asked);
  training.read(next);
  training.merge_all();
  const auto& tokens = training.tokens();
  json merges = json::array();
  for (const auto& [left, right] : training.merges())
    merges.push_back(tokens[static_cast<size_t>(left)] + " " + tokens[static_cast<size_t>(right)]);
  return files_of(tokens, std::move(merges), asked.special_tokens, split_of(asked.pattern));
}

TrainedTokenizer byte_tokenizer_files() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(byte_character(static_cast<char>(byte)));
  const json whole_text = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return files_of(tokens, json::array(), {}, whole_text);
}

}  // namespace spillway::data
