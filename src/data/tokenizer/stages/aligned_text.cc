#include "data/tokenizer/stages/aligned_text.h"

#include "base/utf8.h"

namespace spillway::data {

ByteRange origin_of(const AlignedText& text, size_t begin, size_t end) {
  if (begin < end) return {text.origin[begin].begin, text.origin[end - 1].end};
  const i64 at = begin > 0 ? text.origin[begin - 1].end : text.origin.empty() ? 0 : text.origin[0].begin;
  return {at, at};
}

AlignedText aligned(std::string_view original, i64 begin, bool tracked, WorkBudget& budget) {
  AlignedText made{std::string(), tracked, {}, &budget};
  const bool whole = is_utf8(original);
  if (!tracked) {
    made.text = whole ? std::string(original) : replace_broken_utf8(original);
    return made;
  }
  made.text.reserve(original.size());
  made.origin.reserve(original.size());
  for (size_t at = 0; at < original.size();) {
    const Utf8Unit unit = utf8_unit(original.substr(at));
    const i64 from = begin + static_cast<i64>(at);
    if (unit.valid) {
      for (int i = 0; i < unit.bytes; ++i) made.origin.push_back({from + i, from + i + 1});
      made.text += original.substr(at, static_cast<size_t>(unit.bytes));
    } else {
      made.origin.insert(made.origin.end(), kReplacementText.size(), {from, from + unit.bytes});
      made.text += kReplacementText;
    }
    at += static_cast<size_t>(unit.bytes);
  }
  return made;
}

AlignedText part_of(const AlignedText& text, size_t begin, size_t end) {
  AlignedText part{text.text.substr(begin, end - begin), text.tracked, {}, text.budget};
  const auto first = text.origin.begin();
  if (text.tracked) part.origin.assign(first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end));
  return part;
}

void Rewriter::keep(size_t begin, size_t end) {
  made_.text.append(from_.text, begin, end - begin);
  if (!made_.tracked) return;
  const auto first = from_.origin.begin();
  made_.origin.insert(made_.origin.end(), first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end));
}

void Rewriter::put(std::string_view bytes, size_t begin, size_t end) {
  made_.budget->check_length(made_.text.size() + bytes.size());
  made_.text += bytes;
  if (!made_.tracked) return;
  if (begin == end && begin > 0) --begin;
  made_.origin.insert(made_.origin.end(), bytes.size(), origin_of(from_, begin, end));
}

void keep_with_prefix(Rewriter& out, const AlignedText& from, size_t begin, size_t end, std::string_view prefix) {
  size_t second = begin;
  next_code(from.text, second);
  out.put(prefix, begin, second);
  out.put(std::string_view(from.text).substr(begin, second - begin), begin, second);
  out.keep(second, end);
}

}  // namespace spillway::data
