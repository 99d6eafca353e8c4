// A text on its way through normalizers: its bytes and, if they are wanted, where each came from in the original text. A value.
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
  std::vector<ByteRange> origin;  // one for each byte if tracked, else empty
  WorkBudget* budget = nullptr;   // of the whole text; set wherever a step runs
};

/// The part of the original text that [begin, end) of `text` stands for; text must be tracked.
ByteRange origin_of(const AlignedText& text, size_t begin, size_t end);

/// `original` as UTF-8 (broken sequences replaced). `begin`: where it lies in the whole.
AlignedText aligned(std::string_view original, i64 begin, bool tracked, WorkBudget& budget);

/// The bytes [begin, end) alone.
AlignedText part_of(const AlignedText& text, size_t begin, size_t end);

/// Writes a new text from parts of an old one. Errors: Error(data) if it grows over the budget.
class Rewriter {
 public:
  explicit Rewriter(const AlignedText& from) : from_(from), made_{{}, from.tracked, {}, from.budget} {
    made_.text.reserve(from.text.size());
  }

  size_t size() const { return made_.text.size(); }
  /// The bytes [begin, end) as they are.
  void keep(size_t begin, size_t end);
  /// New bytes, all of which stand for what [begin, end) of the old text stands for. An empty range: for what the byte before it does.
  void put(std::string_view bytes, size_t begin, size_t end);
  AlignedText take() { return std::move(made_); }

 private:
  const AlignedText& from_;
  AlignedText made_;
};

/// Puts `prefix` before [begin, end) of the old text, which is not empty, and keeps the rest: prefix and first character stand for the
/// first character.
void keep_with_prefix(Rewriter& out, const AlignedText& from, size_t begin, size_t end, std::string_view prefix);

}  // namespace spillway::data
