// Byte pair encoding (Sennrich, Haddow, Birch 2016, "Neural Machine Translation of Rare Words with Subword Units").
// A piece starts as a list of its characters. The neighbouring pair with the lowest rank is merged into one symbol;
// of pairs of equal rank, the leftmost is merged first. This repeats until no neighbouring pair has a rank.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/models/merges.h"
#include "data/tokenizer/models/model.h"

namespace spillway::data {
namespace {

using nlohmann::json;
using Symbol = Scratch::Symbol;
using Candidate = Scratch::Candidate;

constexpr std::string_view kMetaspace = "\u2581";
constexpr u32 kNoRank = ~u32{0};
constexpr size_t kAffixCost = 32;  // the budget steps that are charged for each byte that may become a symbol
constexpr size_t kShortWord = 48;  // the longest word, in symbols, for which a scan of all pairs is faster than a heap

class Bpe : public Model {
 public:
  Bpe(Fields& fields, bool& raw_bytes);
  void encode(std::string_view piece, Scratch& scratch, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const override;

 private:
  void read_merges(const json& merges, const JsonPlace& place);
  void add_merge(const std::string& left, const std::string& right, size_t rank, const JsonPlace& place);
  void word(std::string_view text, i64 begin, Scratch& scratch, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const;
  void start(std::string_view word, Scratch& scratch) const;
  void start_with_characters(std::string_view word, Scratch& scratch) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  size_t word_end(std::string_view piece, size_t at) const;

  Merges merges_;
  Vocabulary by_bytes_;  // tokens by their raw bytes; filled only if pieces come as raw bytes
  // The token of each byte, or kNoToken if there is none. If pieces come as raw
  // bytes, it is the token of that single byte; otherwise it is the token "<0xNN>".
  std::array<i32, 256> of_byte_{};
  i32 unknown_ = kNoToken;
  std::string prefix_, suffix_;
  bool raw_ = false, fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
  bool cut_at_metaspace_ = false;  // true if no merge joins a U+2581 to another character before it
};

Bpe::Bpe(Fields& fields, bool& raw_bytes) {
  vocabulary_ = Vocabulary::read(fields.at("vocab", "an object"), fields.place_of("vocab"));
  fuse_unknown_ = fields.flag("fuse_unk", false);
  byte_fallback_ = fields.flag("byte_fallback", false);
  ignore_merges_ = fields.flag("ignore_merges", false);
  prefix_ = read_affix(fields, "continuing_subword_prefix");
  suffix_ = read_affix(fields, "end_of_word_suffix");
  if (const json* dropout = fields.find("dropout"); dropout != nullptr && *dropout != json(0.0)) {
    refuse_json(fields.place_of("dropout"), "null or 0", *dropout);
  }
  if (const auto unknown = fields.text_if_any("unk_token"); unknown && !unknown->empty()) {
    unknown_ = vocabulary_.find(*unknown);
    if (unknown_ == kNoToken) refuse_json(fields.place_of("unk_token"), "a token of the vocabulary", json(*unknown));
  }
  raw_ = raw_bytes = raw_bytes && prefix_.empty() && suffix_.empty() && !byte_fallback_;
  for (unsigned i = 0; i < 256; ++i) {
    const auto byte = static_cast<unsigned char>(i);
    of_byte_[i] = raw_ ? vocabulary_.find(byte_character(static_cast<char>(byte))) : vocabulary_.find(byte_token(byte));
  }
  cut_at_metaspace_ = !raw_ && !ignore_merges_ && prefix_.empty() && suffix_.empty() && vocabulary_.find(kMetaspace) != kNoToken;
  read_merges(fields.at("merges", "an array"), fields.place_of("merges"));
  for (i32 id = 0; raw_ && ignore_merges_ && id < vocabulary_.bound(); ++id) {
    const auto bytes = vocabulary_.has(id) ? bytes_of_characters(vocabulary_.text(id)) : std::nullopt;
    if (bytes && !by_bytes_.add(*bytes, id))
      refuse_value(fields.place_of("vocab"), "tokens with different hashes", "hundreds with the same hash");
  }
}

void Bpe::read_merges(const json& merges, const JsonPlace& place) {
  if (!merges.is_array()) refuse_json(place, "an array", merges);
  merges_ = Merges(merges.size());
  size_t rank = 0;
  for (const json& merge : merges) {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        refuse_json(place, "two tokens separated by one space", merge);
      add_merge(text.substr(0, space), text.substr(space + 1), rank++, place);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), rank++, place);
    } else {
      refuse_json(place, "pairs of tokens", merge);
    }
  }
}

void Bpe::add_merge(const std::string& left, const std::string& right, size_t rank, const JsonPlace& place) {
  const i32 left_id = vocabulary_.find(left), right_id = vocabulary_.find(right);
  if (left_id == kNoToken || right_id == kNoToken) refuse_json(place, "tokens of the vocabulary", json(left_id == kNoToken ? left : right));
  if (!right.starts_with(prefix_)) refuse_json(place, "merges whose right part begins with continuing_subword_prefix", json(right));
  const std::string both = left + right.substr(prefix_.size());
  const i32 id = vocabulary_.find(both);
  if (id == kNoToken) refuse_json(place, "merges whose result is in the vocabulary", json(both));
  const bool put = merges_.put(left_id, right_id, {static_cast<u32>(rank), id});
  if (!put) refuse_value(place, "merge pairs with different hashes", "hundreds with the same hash");
  std::string_view rest = both;
  while (rest.starts_with(kMetaspace)) rest.remove_prefix(kMetaspace.size());
  if (rest.find(kMetaspace) != std::string_view::npos) cut_at_metaspace_ = false;
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const {
  if (ignore_merges_) {
    const i32 id = (raw_ ? by_bytes_ : vocabulary_).find(piece);
    if (id != kNoToken) {
      ids.push_back(id);
      if (ranges) ranges->push_back({0, static_cast<i64>(piece.size())});
      return;
    }
  }
  if (!cut_at_metaspace_) return word(piece, 0, scratch, ids, ranges);
  for (size_t at = 0; at < piece.size();) {
    const size_t end = word_end(piece, at);
    word(piece.substr(at, end - at), static_cast<i64>(at), scratch, ids, ranges);
    at = end;
  }
}

/// Returns where the word at `at` ends: before the next U+2581 that follows another character, or at the end of the piece.
size_t Bpe::word_end(std::string_view piece, size_t at) const {
  while (piece.substr(at, kMetaspace.size()) == kMetaspace) at += kMetaspace.size();
  return std::min(piece.find(kMetaspace, at), piece.size());
}

void Bpe::word(std::string_view text, i64 begin, Scratch& scratch, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const {
  if (ranges == nullptr) {
    const auto known = scratch.cache.find(text);
    if (!known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
  }
  start(text, scratch);
  if (scratch.symbols.size() <= kShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  const size_t first = ids.size();
  const i64 behind = begin + static_cast<i64>(text.size());
  for (const Symbol& symbol : scratch.symbols) {
    if (symbol.bytes == 0) continue;
    ids.push_back(symbol.id);
    // if an affix was split into bytes, its symbols would extend beyond the word, so the end is limited
    const i64 end = std::min(begin + symbol.bytes, behind);
    if (ranges) ranges->push_back({begin, end});
    begin = end;
  }
  if (ranges == nullptr) scratch.cache.put(text, std::span(ids).subspan(first));
}

void Bpe::start(std::string_view text, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  if (!raw_) return start_with_characters(text, scratch);
  // This loop works like start_with_characters(), except that each byte counts as a character.
  for (const char c : text) {
    const i32 id = of_byte_[static_cast<unsigned char>(c)];
    if (id != kNoToken) {
      symbols.push_back({id, 1, 0, 0});
    } else if (unknown_ != kNoToken && fuse_unknown_ && !symbols.empty() && symbols.back().previous == 1) {
      ++symbols.back().bytes;
    } else if (unknown_ != kNoToken) {
      symbols.push_back({unknown_, 1, 1, 0});
    }
  }
}

/// Splits the word into its characters. A character outside the vocabulary is replaced by its bytes if every byte has a token. Otherwise it
/// becomes the unknown token. If there is no unknown token either, the character is left out.
void Bpe::start_with_characters(std::string_view text, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  i32 unknown_bytes = 0;
  const auto flush = [&] {
    if (unknown_bytes > 0) symbols.push_back({unknown_, unknown_bytes, 0, 0});
    unknown_bytes = 0;
  };
  const bool affixes = !prefix_.empty() || !suffix_.empty();
  std::string with_affixes;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_code(text, at);
    const auto bytes = static_cast<i32>(at - begin);
    std::string_view character = text.substr(begin, at - begin);
    if (affixes) {
      with_affixes = (begin > 0 ? prefix_ : "") + std::string(character) + (at == text.size() ? suffix_ : "");
      character = with_affixes;
      scratch.budget->charge(kAffixCost * character.size());
    }
    const i32 id = vocabulary_.find(character);
    if (id != kNoToken) {
      flush();
      symbols.push_back({id, bytes, 0, 0});
      continue;
    }
    const auto of = [&](char c) { return of_byte_[static_cast<unsigned char>(c)]; };
    if (byte_fallback_ && std::ranges::none_of(character, [&](char c) { return of(c) == kNoToken; })) {
      for (const char c : character) symbols.push_back({of(c), 1, 0, 0});
      continue;
    }
    if (unknown_ == kNoToken) continue;
    if (!fuse_unknown_) flush();
    unknown_bytes += bytes;
  }
  flush();
}

void Bpe::merge_short(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& ranks = scratch.ranks;
  auto& merged = scratch.merged;
  size_t n = symbols.size();
  ranks.resize(n);
  merged.resize(n);
  const auto look = [&](size_t i) {
    const Merges::Merge* merge = i + 1 < n ? merges_.find(symbols[i].id, symbols[i + 1].id) : nullptr;
    ranks[i] = merge ? merge->rank : kNoRank;
    merged[i] = merge ? merge->id : kNoToken;
  };
  for (size_t i = 0; i < n; ++i) look(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    symbols[best].id = merged[best];
    symbols[best].bytes += symbols[best + 1].bytes;
    const auto erase = [&](auto& list) {
      std::copy(list.begin() + static_cast<std::ptrdiff_t>(best) + 2, list.begin() + static_cast<std::ptrdiff_t>(n),
                list.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    };
    erase(symbols);
    erase(ranks);
    erase(merged);
    --n;
    look(best);
    if (best > 0) look(best - 1);
  }
  symbols.resize(n);
}

void Bpe::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto later = [](const Candidate& a, const Candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.at > b.at; };
  const auto offer = [&](i64 at, i64 next) {
    if (at < 0 || next < 0) return;
    const Merges::Merge* merge = merges_.find(symbols[static_cast<size_t>(at)].id, symbols[static_cast<size_t>(next)].id);
    if (merge) heap.push_back({merge->rank, merge->id, at});
    if (merge) std::ranges::push_heap(heap, later);
  };
  const auto n = static_cast<i64>(symbols.size());
  for (i64 i = 0; i < n; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < n ? i + 1 : -1;
  }
  for (i64 i = 0; i + 1 < n; ++i) offer(i, i + 1);
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const Candidate candidate = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(candidate.at)];
    if (left.bytes == 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Merges::Merge* merge = merges_.find(left.id, right.id);
    // A candidate merge is outdated if one of its two symbols has been merged since it was queued.
    if (merge == nullptr || merge->id != candidate.id) continue;
    left.id = candidate.id;
    left.bytes += right.bytes;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = candidate.at;
    offer(left.previous, candidate.at);
    offer(candidate.at, left.next);
  }
}

}  // namespace

std::unique_ptr<Model> read_bpe(Fields& fields, bool& raw_bytes) { return std::make_unique<Bpe>(fields, raw_bytes); }

}  // namespace spillway::data
