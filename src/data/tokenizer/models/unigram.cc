// The unigram model (Kudo 2018, "Subword Regularization"). A piece can be split into tokens
// in many ways; the model chooses the split with the largest sum of the tokens' scores.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizer/models/model.h"
#include "data/tokenizer/trie.h"

namespace spillway::data {
namespace {

using nlohmann::json;

constexpr double kUnknownPenalty = 10.0;  // an unknown character scores the lowest score minus this penalty

class Unigram : public Model {
 public:
  explicit Unigram(Fields& fields) {
    read_pieces(fields.at("vocab", "an array"), fields.place_of("vocab"));
    unknown_ = static_cast<i32>(fields.number("unk_id", 0, vocabulary_.bound() - 1, kNoToken));
    byte_fallback_ = fields.flag("byte_fallback", false);
    for (unsigned i = 0; i < 256; ++i) of_byte_[i] = vocabulary_.find(byte_token(static_cast<unsigned char>(i)));
  }

  void encode(std::string_view piece, Scratch& scratch, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const override {
    if (ranges == nullptr) {
      const auto known = scratch.cache.find(piece);
      if (!known.empty()) {
        ids.insert(ids.end(), known.begin(), known.end());
        return;
      }
    }
    find_best_path(piece, *scratch.budget, scratch.best);
    const size_t first = ids.size();
    write_path(piece, scratch.best, ids, ranges);
    if (ranges == nullptr) scratch.cache.put(piece, std::span(ids).subspan(first));
  }

 private:
  void read_pieces(const json& pieces, const JsonPlace& place) {
    if (!pieces.is_array() || pieces.empty()) refuse_json(place, "an array of tokens with their scores", pieces);
    for (const json& piece : pieces) {
      const bool good = piece.is_array() && piece.size() == 2 && piece[0].is_string() && piece[1].is_number();
      if (!good || !std::isfinite(piece[1].get<double>())) refuse_json(place, "pairs of a token and its score", piece);
      const auto id = static_cast<i32>(scores_.size());
      const auto& text = piece[0].get_ref<const std::string&>();
      if (!vocabulary_.add(text, id)) refuse_value(place, "tokens with different hashes", "hundreds with the same hash");
      scores_.push_back(piece[1].get<double>());
      lowest_ = std::min(lowest_, scores_.back());
      if (!text.empty()) trie_.add(text, id);
    }
  }

  void find_best_path(std::string_view piece, WorkBudget& budget, std::vector<Scratch::Best>& best) const {
    best.assign(piece.size() + 1, {});
    const auto offer = [&](size_t begin, size_t end, i32 id, double score) {
      Scratch::Best& target = best[end];
      score += best[begin].score;
      if (target.begin < 0 || score > target.score) target = {score, static_cast<i64>(begin), id};
    };
    size_t steps = 0;
    for (size_t at = 0; at < piece.size();) {
      size_t behind = at;
      next_code(piece, behind);
      bool whole_character = false;
      const size_t looked_at = trie_.prefixes(piece.substr(at), [&](size_t length, i32 id) {
        offer(at, at + length, id, scores_[static_cast<size_t>(id)]);
        whole_character |= at + length == behind;
      });
      steps += Trie::kStepCost * looked_at;
      if (steps >= WorkBudget::kStepsAtOnce) budget.charge(std::exchange(steps, 0));
      if (!whole_character) {
        if (unknown_ == kNoToken) {
          throw Error(ErrorCode::data, "[tokenizer] expected a text whose characters are in the vocabulary, got \"" +
                                           std::string(piece.substr(at, behind - at)) +
                                           "\", and the tokenizer has no unk_id; use another tokenizer");
        }
        offer(at, behind, unknown_, lowest_ - kUnknownPenalty);
      }
      at = behind;
    }
    budget.charge(steps);
  }

  /// Appends the ids of the tokens on the best path. Adjacent unknown characters form one part of the path.
  void write_path(std::string_view piece, const std::vector<Scratch::Best>& best, std::vector<i32>& ids,
                  std::vector<ByteRange>* ranges) const {
    const size_t first = ids.size(), first_range = ranges ? ranges->size() : 0;
    for (auto end = static_cast<i64>(piece.size()); end > 0;) {
      const Scratch::Best* node = &best[static_cast<size_t>(end)];
      i64 begin = node->begin;
      while (node->id == unknown_ && begin > 0 && best[static_cast<size_t>(begin)].id == unknown_)
        begin = best[static_cast<size_t>(begin)].begin;
      write_part(piece, {begin, end}, ids, ranges);
      end = begin;
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
    if (ranges) std::reverse(ranges->begin() + static_cast<std::ptrdiff_t>(first_range), ranges->end());
  }

  /// Appends the ids of one part of the path in reverse order; write_path() reverses the whole list at the end.
  void write_part(std::string_view piece, ByteRange part, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const {
    const std::string_view text = piece.substr(static_cast<size_t>(part.begin), static_cast<size_t>(part.end - part.begin));
    const i32 id = vocabulary_.find(text);
    const auto of = [&](char c) { return of_byte_[static_cast<unsigned char>(c)]; };
    if (id == kNoToken && byte_fallback_ && std::ranges::none_of(text, [&](char c) { return of(c) == kNoToken; })) {
      for (size_t i = text.size(); i-- > 0;) {
        ids.push_back(of(text[i]));
        const i64 at = part.begin + static_cast<i64>(i);
        if (ranges) ranges->push_back({at, at + 1});
      }
      return;
    }
    ids.push_back(id == kNoToken ? unknown_ : id);
    if (ranges) ranges->push_back(part);
  }

  Trie trie_;
  std::vector<double> scores_;
  double lowest_ = std::numeric_limits<double>::infinity();
  std::array<i32, 256> of_byte_{};
  i32 unknown_ = kNoToken;
  bool byte_fallback_ = false;
};

}  // namespace

std::unique_ptr<Model> read_unigram(Fields& fields) { return std::make_unique<Unigram>(fields); }

}  // namespace spillway::data
