// AlignedText is a text while it is being normalized. If `tracked` is true, the object also records
// for each byte from which bytes of the original text it came. AlignedText is a plain value.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/work_budget.h"

namespace spillway::data {

struct AlignedText {
  std::string text;
  bool tracked = false;
  std::vector<ByteRange> origin;  // one range of the original text for each byte if `tracked`; otherwise empty
  WorkBudget* budget = nullptr;   // the budget of the whole text; it is set whenever a step runs
};

/// Returns the range of the original text from which bytes [begin, end) of `text` came. `text` must be tracked.
ByteRange origin_of(const AlignedText& text, size_t begin, size_t end);

/// Returns `original` as valid UTF-8: each broken sequence is replaced by U+FFFD. `original` may be a
/// part of a longer text; `begin` is its offset in that text, from which the recorded ranges count.
AlignedText aligned(std::string_view original, i64 begin, bool tracked, WorkBudget& budget);

/// Returns bytes [begin, end) of `text` as a separate text.
AlignedText part_of(const AlignedText& text, size_t begin, size_t end);

/// Builds a new text from parts of an old one. Throws Error(data) if the new text becomes longer than the budget allows.
class Rewriter {
 public:
  explicit Rewriter(const AlignedText& from) : from_(from), made_{{}, from.tracked, {}, from.budget} {
    made_.text.reserve(from.text.size());
  }

  size_t size() const { return made_.text.size(); }
  /// Appends bytes [begin, end) of the old text unchanged.
  void keep(size_t begin, size_t end);
  /// Appends new bytes and records that all of them came from bytes [begin, end) of the old text. If that range is empty, the new bytes get
  /// the origin of the old text's byte before `begin`.
  void put(std::string_view bytes, size_t begin, size_t end);
  AlignedText take() { return std::move(made_); }

 private:
  const AlignedText& from_;
  AlignedText made_;
};

/// Appends `prefix` and then bytes [begin, end) of the old text, which must not be empty. Each byte of the prefix gets the first character
/// of that range as its origin.
void keep_with_prefix(Rewriter& out, const AlignedText& from, size_t begin, size_t end, std::string_view prefix);

}  // namespace spillway::data
