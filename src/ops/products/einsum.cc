#include "ops/products/einsum.h"

#include <algorithm>
#include <vector>

#include "ops/layout/shape.h"
#include "ops/products/matmul.h"
#include "ops/refuse.h"
#include "ops/rows/reduce.h"

namespace spillway::ops {
namespace {

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }
bool is_letter(char c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z'); }

// The character that stands for "..." among the letters of an input. Later it is replaced
// by one digit for each axis that "..." covers; the digit '0' means the last of these axes.
constexpr char kOthers = '.';

struct Equation {
  std::string a, b, out;  // the letters of the two inputs and of the result, with kOthers for "..."

  explicit Equation(const std::string& whole) : text_(whole) {
    a = letters("a");
    if (next() != ',') refuse_here("a comma and a second input");
    ++at_;
    b = letters("b");
    if (next() == ',') refuse_here("exactly two inputs, not a third one,");
    next() == '\0' ? imply_result() : read_result();
  }

 private:
  [[noreturn]] void refuse_here(const std::string& expected) const {
    throw Error(ErrorCode::bug, "[einsum] expected " + expected + " at position " + std::to_string(at_) + " of \"" + text_ +
                                    "\"; two inputs are written as in \"bij,bjk->bik\"");
  }

  // Skips spaces and returns the current character; 0 at the end of the text.
  char next() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::string letters(const std::string& whose) {
    std::string all;
    for (; is_letter(next()) || text_.compare(at_, 3, "...") == 0; ++at_) {
      if (has(all, text_[at_])) refuse_here("each letter of " + whose + " once, not '" + text_[at_] + "' again,");
      all += text_[at_];
      if (text_[at_] == kOthers) at_ += 2;
    }
    return all;
  }

  void read_result() {
    if (text_.compare(at_, 2, "->") != 0) refuse_here("a letter, a comma or \"->\"");
    at_ += 2;
    const size_t first = at_;
    out = letters("the result");
    if (next() != '\0') refuse_here("a letter or the end");
    if (has(out, kOthers) && !has(a + b, kOthers)) refuse_here("\"...\" in an input because the result has \"...\",");
    for (at_ = first; next() != '\0'; ++at_) {
      if (!has(a + b, text_[at_])) refuse_here(std::string("letters of the inputs, not '") + text_[at_] + "',");
    }
  }

  void imply_result() {
    for (const char letter : a + b) {
      if (has(a, letter) != has(b, letter)) out += letter;
    }
    std::erase(out, kOthers);
    std::sort(out.begin(), out.end());
    if (has(a + b, kOthers)) out = kOthers + out;
  }

  const std::string& text_;
  size_t at_ = 0;
};

// A tensor of the product, with the letters of its axes.
struct Named {
  Variable x;
  std::string letters;

  i64 extent(char letter) const { return x.shape()[static_cast<int>(letters.find(letter))]; }

  // Sums over those axes of x whose letters are not in `others`.
  void keep(const std::string& others) {
    for (size_t i = letters.size(); i-- > 0;) {
      if (has(others, letters[i])) continue;
      x = sum(x, static_cast<int>(i), false);
      letters.erase(i, 1);
    }
  }

  void turn_to(const std::string& wanted) {
    if (wanted == letters) return;
    std::vector<int> axes;
    for (const char letter : wanted) axes.push_back(static_cast<int>(letters.find(letter)));
    x = permute(x, axes);
    letters = wanted;
  }

  // Returns x as a batch of matrices with three axes: all axes in `p`, then those in `q`, then those in `r`.
  Variable as_batch(const std::string& p, const std::string& q, const std::string& r) {
    turn_to(p + q + r);
    i64 extents[3] = {1, 1, 1};
    for (const char letter : letters) extents[has(p, letter) ? 0 : has(q, letter) ? 1 : 2] *= extent(letter);
    return reshape(x, {extents[0], extents[1], extents[2]});
  }
};

// Replaces kOthers in the letters of an input or of the result by `others` digits, one for each axis that "..." covers.
void spell_out(std::string& letters, i64 others) {
  const size_t at = letters.find(kOthers);
  if (at == std::string::npos || others < 0) return;
  std::string digits;
  for (i64 i = others; i-- > 0;) digits += static_cast<char>('0' + i);
  letters.replace(at, 1, digits);
}

// Returns the number of axes that "..." covers.
i64 others_of(const std::string& letters, const Tensor& x) { return has(letters, kOthers) ? x.rank() - std::ssize(letters) + 1 : 0; }

// Drops the axes of "..." that have size 1 in `a` and a larger size in `b`. Such a broadcast axis then belongs to b alone.
void drop_stretched(Named& a, const Named& b) {
  std::vector<i64> extents;
  std::string kept;
  for (const char letter : a.letters) {
    if ('0' <= letter && letter <= '9' && has(b.letters, letter) && a.extent(letter) == 1 && b.extent(letter) != 1) continue;
    extents.push_back(a.extent(letter));
    kept += letter;
  }
  if (kept == a.letters) return;
  a = {reshape(a.x, Shape(std::span<const i64>(extents))), kept};
}

void check(const Equation& e, const Tensor& a, const Tensor& b) {
  if (static_cast<int>(e.a.size()) != a.rank() || static_cast<int>(e.b.size()) != b.rank() || a.dtype() != b.dtype())
    refuse("einsum", "inputs of the same dtype with one axis for each letter of " + e.a + " and of " + e.b, {a, b});
  if (e.out.size() > static_cast<size_t>(Shape::kMaxRank)) refuse("einsum", "a result of at most 6 axes, not " + e.out, {a, b});
  for (size_t i = 0; i < e.a.size(); ++i) {
    const size_t other = e.b.find(e.a[i]);
    if (other == std::string::npos) continue;
    const i64 here = a.size(static_cast<int>(i)), there = b.size(static_cast<int>(other));
    const bool stretches = '0' <= e.a[i] && e.a[i] <= '9' && (here == 1 || there == 1);
    if (here != there && !stretches)
      refuse("einsum",
             is_letter(e.a[i]) ? std::string("the same extent in both inputs for '") + e.a[i] + "'" : "axes in \"...\" that broadcast",
             {a, b});
  }
}

}  // namespace

Variable einsum(const std::string& equation, const Variable& first, const Variable& second) {
  Equation e(equation);
  const i64 others_a = others_of(e.a, first.value), others_b = others_of(e.b, second.value);
  spell_out(e.a, others_a), spell_out(e.b, others_b), spell_out(e.out, std::max(others_a, others_b));
  check(e, first.value, second.value);
  Named a{first, e.a}, b{second, e.b};
  drop_stretched(a, b), drop_stretched(b, a);
  a.keep(e.b + e.out), b.keep(e.a + e.out);
  std::string batch, inner, rows, columns;
  for (const char letter : a.letters) (!has(b.letters, letter) ? rows : has(e.out, letter) ? batch : inner) += letter;
  for (const char letter : b.letters) {
    if (!has(a.letters, letter)) columns += letter;
  }
  std::vector<i64> extents;
  for (const char letter : batch + rows) extents.push_back(a.extent(letter));
  for (const char letter : columns) extents.push_back(b.extent(letter));
  const Variable product = matmul(a.as_batch(batch, rows, inner), b.as_batch(batch, inner, columns));
  Named result{reshape(product, Shape(std::span<const i64>(extents))), batch + rows + columns};
  result.turn_to(e.out);
  return result.x;
}

}  // namespace spillway::ops
