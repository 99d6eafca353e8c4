// AlignedText is a text in the course of normalization. If tracking is on, it also records for each byte where in the original text it came
// from. A value.
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
  std::vector<ByteRange> origin;  // one range of the original per byte if tracked, else empty
  WorkBudget* budget = nullptr;   // budget of the whole text; set whenever a step runs
};

/// Returns the range of the original text that bytes [begin, end) of `text` come from. The text must be tracked.
ByteRange origin_of(const AlignedText& text, size_t begin, size_t end);

/// Returns `original` as UTF-8, with broken sequences replaced. `begin` is its offset in the whole original text.
AlignedText aligned(std::string_view original, i64 begin, bool tracked, WorkBudget& budget);

/// Returns bytes [begin, end) as a text of their own.
AlignedText part_of(const AlignedText& text, size_t begin, size_t end);

/// Builds a new text from parts of an old one. Throws Error(data) if it grows beyond the budget.
class Rewriter {
 public:
  explicit Rewriter(const AlignedText& from) : from_(from), made_{{}, from.tracked, {}, from.budget} {
    made_.text.reserve(from.text.size());
  }

  size_t size() const { return made_.text.size(); }
  /// Appends bytes [begin, end) of the old text unchanged.
  void keep(size_t begin, size_t end);
  /// Appends new bytes, all of which come from [begin, end) of the old text. If that range is empty, they come from where the byte before
  /// it does.
  void put(std::string_view bytes, size_t begin, size_t end);
  AlignedText take() { return std::move(made_); }

 private:
  const AlignedText& from_;
  AlignedText made_;
};

/// Appends `prefix` and then bytes [begin, end) of the old text, which must not be empty. The prefix and the first character both come from
/// the first character.
void keep_with_prefix(Rewriter& out, const AlignedText& from, size_t begin, size_t end, std::string_view prefix);

}  // namespace spillway::data
