#include "data/template/values/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>

#include "data/template/values/markup.h"
#include "data/template/values/text_format.h"
#include "data/template/values/text_methods.h"

namespace spillway::data::chat {
namespace {

__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;

constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void refuse(const Run& run, const char* sign, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    const auto* undefined = std::get_if<Undefined>(&side->held());
    if (undefined) run.fail(undefined->why ? std::string(*undefined->why) : "a value is undefined");
  }
  run.fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", sign, type_name(left), type_name(right)));
}

[[noreturn]] void overflow(const Run& run, const char* sign) {
  run.fail(fmt::format("expected whole numbers that fit in 64 bits, got a larger result from {}", sign));
}

i64 floor_divide(const Run& run, i64 a, i64 b) {
  if (b == 0) run.fail("integer division or modulo by zero");
  if (b == -1) {
    i64 negative = 0;
    if (__builtin_sub_overflow(i64{0}, a, &negative)) overflow(run, "//");
    return negative;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

// Returns the remainder of a / b. As in Python, it has the sign of the divisor b.
i64 modulo(const Run& run, i64 a, i64 b) {
  if (b == 0) run.fail("integer division or modulo by zero");
  if (b == -1) return 0;
  const i64 rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Returns the double that is nearest to a / b. A quotient computed in long double would be rounded twice.
double true_quotient(i64 a, i64 b) {
  constexpr i64 kExact = i64{1} << 53;
  if (a >= -kExact && a <= kExact && b >= -kExact && b <= kExact) return static_cast<double>(a) / static_cast<double>(b);
  const auto size = [](i64 n) { return n < 0 ? u64{0} - static_cast<u64>(n) : static_cast<u64>(n); };
  const u64 dividend = size(a), divisor = size(b);
  if (dividend == 0) return b < 0 ? -0.0 : 0.0;
  // The quotient has at least 64 bits. If the division leaves a remainder, the
  // quotient's last bit is set, so that the conversion to double rounds correctly.
  const int shift = 64 + std::countl_zero(dividend);
  const auto wide = static_cast<u128>(dividend) << shift;
  const auto quotient = wide / divisor | static_cast<unsigned>(wide % divisor != 0);
  const double result = std::ldexp(static_cast<double>(quotient), -shift);
  return (a < 0) != (b < 0) ? -result : result;
}

Value power(Run& run, i64 base, i64 exponent) {
  if (exponent < 0) {
    if (base == 0) run.fail("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1 || base == -1) exponent = exponent == 0 ? 0 : (base == -1 && exponent % 2 == 0 ? 2 : 1);
  i64 result = 1;
  for (i64 i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) overflow(run, "**");
  }
  return result;
}

Value on_integers(Run& run, Operator op, i64 a, i64 b) {
  i64 result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) overflow(run, "+");
      return result;
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow(run, "-");
      return result;
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow(run, "*");
      return result;
    case Operator::divide:
      if (b == 0) run.fail("division by zero");
      return true_quotient(a, b);
    case Operator::floor_divide:
      return floor_divide(run, a, b);
    case Operator::modulo:
      return modulo(run, a, b);
    case Operator::power:
      return power(run, a, b);
  }
  return {};
}

// Returns a / b rounded down, and the remainder of this division. Both are computed as CPython does for floats.
std::pair<double, double> divide_down(const Run& run, double a, double b) {
  if (b == 0) run.fail("float floor division by zero");
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (rest == 0) rest = std::copysign(0.0, b);
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double down = std::floor(quotient);
  return {quotient - down > 0.5 ? down + 1 : down, rest};
}

Value on_reals(Run& run, Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::divide:
      if (b == 0) run.fail("float division by zero");
      return a / b;
    case Operator::floor_divide:
      return divide_down(run, a, b).first;
    case Operator::modulo:
      return divide_down(run, a, b).second;
    case Operator::power: {
      if (a == 0 && b < 0) run.fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::trunc(b)) run.fail("expected a real number as the result of **, got a complex one");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) run.fail("numerical result out of range");
      return result;
    }
  }
  return {};
}

std::optional<Value> repeat(Run& run, const Value& what, i64 times) {
  if (const String* text = what.text()) return make_text_like(what, repeated(run, *text, times));
  const Sequence* s = what.sequence();
  if (!s || !s->has_index()) return {};
  size_t total = 0;
  Values items;
  if (__builtin_mul_overflow(s->items.size(), static_cast<size_t>(std::max<i64>(times, 0)), &total) || total > items.max_size())
    run.fail("expected a list that fits in memory, got a longer one from *");
  items.reserve(total);
  while (items.size() < total) items.insert(items.end(), s->items.begin(), s->items.end());
  return make_sequence(run, s->is_list() ? Form::list : Form::tuple, std::move(items));
}

std::optional<Value> concatenate(Run& run, const Value& left, const Value& right) {
  if (left.text() && right.text()) {
    if (left.is_markup() || right.is_markup()) return make_markup(*escape(run, left).text() + *escape(run, right).text());
    return Value(*left.text() + *right.text());
  }
  const Sequence *a = left.sequence(), *b = right.sequence();
  if (!a || !b || !((a->is_list() && b->is_list()) || (a->is_tuple() && b->is_tuple()))) return {};
  Values items;
  items.reserve(a->items.size() + b->items.size());
  items = a->items;
  items.insert(items.end(), b->items.begin(), b->items.end());
  return make_sequence(run, a->is_list() ? Form::list : Form::tuple, std::move(items));
}

// Compares two numbers exactly, even if a whole number has more digits than a double can hold.
std::partial_ordering compare_numbers(const Value& left, const Value& right) {
  const auto exact = [](const Value& v) { return v.real() ? static_cast<long double>(*v.real()) : static_cast<long double>(*v.whole()); };
  return exact(left) <=> exact(right);
}

class Nested {
 public:
  explicit Nested(Run& run) : run_(run) { run.spend(); }

  bool equal(const Value& a, const Value& b) {
    run_.spend();
    if (a.number() && b.number()) return compare_numbers(a, b) == std::partial_ordering::equivalent;
    if (a.text() && b.text()) {
      if (a.text() == b.text() || a.text()->size() != b.text()->size()) return a.text() == b.text();
      run_.spend_bytes(a.text()->size());
      return *a.text() == *b.text();
    }
    if (const Sequence* s = a.sequence(), *t = b.sequence(); s && t && s != t) {
      if (!((s->is_list() && t->is_list()) || (s->is_tuple() && t->is_tuple()))) {
        if (s->has_index() || t->has_index() || !s->has_length() || !t->has_length()) return false;
        run_.fail("expected lists, tuples or dicts to compare, got " + type_name(a) + " and " + type_name(b));
      }
      return s->items.size() == t->items.size() &&
             std::equal(s->items.begin(), s->items.end(), t->items.begin(), [&](const Value& x, const Value& y) { return equal(x, y); });
    }
    if (const Dict* d = a.dict(), *e = b.dict(); d && e && d != e) {
      if (d->entries.size() != e->entries.size()) return false;
      return std::all_of(d->entries.begin(), d->entries.end(), [&](const auto& entry) {
        const Value* other = e->find(run_, entry.first);
        return other && equal(entry.second, *other);
      });
    }
    if (const Range* r = a.range(), *q = b.range(); r && q) {
      return r->size() == q->size() && (r->size() == 0 || (r->start == q->start && (r->size() == 1 || r->step == q->step)));
    }
    return same(a, b);
  }

  // Implements Python's `is`. For immutable values the result may differ from Python's, where identity depends on which objects are shared.
  static bool same(const Value& a, const Value& b) {
    if (a.held().index() != b.held().index()) return false;
    return (a.is_undefined() && b.is_undefined()) || (a.is_none() && b.is_none()) || (a.space() && a.space() == b.space()) ||
           (a.sequence() && a.sequence() == b.sequence()) || (a.dict() && a.dict() == b.dict()) || (a.loop() && a.loop() == b.loop()) ||
           (a.turns() && a.turns() == b.turns()) || (a.callable() && a.callable() == b.callable());
  }

  std::partial_ordering compare(const char* sign, const Value& a, const Value& b) {
    run_.spend();
    if (a.number() && b.number()) return compare_numbers(a, b);
    if (a.text() && b.text()) {
      run_.spend_bytes(std::min(a.text()->size(), b.text()->size()));
      return a.text()->compare(*b.text()) <=> 0;  // comparing the bytes of UTF-8 texts gives the order of their code points
    }
    const Sequence *s = a.sequence(), *t = b.sequence();
    if (!s || !t || !((s->is_list() && t->is_list()) || (s->is_tuple() && t->is_tuple()))) {
      for (const Value* side : {&a, &b}) {
        if (side->is_undefined()) refuse(run_, sign, a, b);
      }
      run_.fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", sign, type_name(a), type_name(b)));
    }
    for (size_t i = 0; i < std::min(s->items.size(), t->items.size()); ++i) {
      if (!equal(s->items[i], t->items[i])) return compare(sign, s->items[i], t->items[i]);
    }
    return s->items.size() <=> t->items.size();
  }

 private:
  Run& run_;
};

}  // namespace

Value apply(Run& run, Operator op, const Value& left, const Value& right) {
  if (left.whole() && right.whole()) return on_integers(run, op, *left.whole(), *right.whole());
  if (left.number() && right.number()) return on_reals(run, op, *left.number(), *right.number());
  if (op == Operator::modulo && left.text()) return percent_format(run, left, right);
  std::optional<Value> result;
  if (op == Operator::add) result = concatenate(run, left, right);
  if (op == Operator::multiply && right.whole()) result = repeat(run, left, *right.whole());
  if (op == Operator::multiply && left.whole()) result = repeat(run, right, *left.whole());
  if (!result) refuse(run, kSigns[static_cast<size_t>(op)], left, right);
  return *result;
}

Value negate(Run& run, const Value& value) {
  if (value.whole()) return on_integers(run, Operator::subtract, 0, *value.whole());
  if (value.real()) return -*value.real();
  refuse(run, "unary -", value, value);
}

Value unary_plus(Run& run, const Value& value) {
  if (value.whole()) return *value.whole();
  if (value.real()) return value;
  refuse(run, "unary +", value, value);
}

bool equal(Run& run, const Value& left, const Value& right) { return Nested(run).equal(left, right); }

bool less(Run& run, const Value& left, const Value& right) { return Nested(run).compare("<", left, right) < 0; }

bool contains(Run& run, const Value& container, const Value& item) {
  if (const String* text = container.text()) {
    if (!item.text()) run.fail("'in <string>' requires string as left operand, not " + type_name(item));
    return find_first(run, *text, *item.text()) != text->npos;
  }
  if (container.dict()) return container.dict()->find(run, item) != nullptr;
  if (const Range* r = container.range()) {
    if (!item.whole()) return item.real() && contains(run, make_sequence(run, Form::list, items_of(run, container)->items), item);
    const i64 i = *item.whole();
    const bool between = r->step > 0 ? i >= r->start && i < r->stop : i <= r->start && i > r->stop;
    return between && (static_cast<i128>(i) - r->start) % r->step == 0;
  }
  if (!container.sequence() && !container.is_undefined())
    run.fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  for (const auto all = items_of(run, container); const Value& other : all->items) {
    if (equal(run, other, item)) return true;
  }
  return false;
}

bool holds(Run& run, Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::equal:
      return equal(run, left, right);
    case Comparison::not_equal:
      return !equal(run, left, right);
    case Comparison::less:
      return Nested(run).compare("<", left, right) < 0;
    case Comparison::less_equal:
      return Nested(run).compare("<=", left, right) <= 0;
    case Comparison::greater:
      return Nested(run).compare(">", left, right) > 0;
    case Comparison::greater_equal:
      return Nested(run).compare(">=", left, right) >= 0;
    case Comparison::in:
      return contains(run, right, left);
    case Comparison::not_in:
      return !contains(run, right, left);
  }
  return false;
}

}  // namespace spillway::data::chat
