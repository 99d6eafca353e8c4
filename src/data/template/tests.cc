// Implements Jinja's tests, which follow `is` in an expression.
#include <fmt/format.h>

#include <algorithm>

#include "data/template/values/builtins.h"
#include "data/template/values/operators.h"
#include "data/template/values/print_value.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

// Implements Python's str.islower and isupper: at least one letter has the wanted case, and no letter has the other case.
bool all_cased(Run& run, std::string_view text, bool (*is_wanted)(char32_t), bool (*is_other)(char32_t)) {
  run.spend_letters(text.size());
  bool any = false;
  for (const char32_t c : CodePoints(text)) {
    if (is_other(c)) return false;
    any = any || is_wanted(c);
  }
  return any;
}

bool is_same(Run& run, const Value& a, const Value& b) {
  if (a.held().index() != b.held().index()) return false;
  if (a.sequence()) return a.sequence() == b.sequence();
  if (a.dict()) return a.dict() == b.dict();
  if (a.range()) return a.range() == b.range();
  if (a.real())
    run.fail("expected `sameas` to compare none, booleans or objects, got a float: its result for a float depends on Python's internals");
  return equal(run, a, b);
}

template <Comparison comparison>
Value compare(Run& run, const Bound& a) {
  return holds(run, comparison, a.at(0), a.at(1));
}

Value is_number(Run&, const Bound& a) { return a.at(0).number().has_value(); }

Value rest_is(Run& run, const Bound& a, const Value& divisor, i64 wanted) {
  return equal(run, apply(run, Operator::modulo, a.at(0), divisor), Value(wanted));
}

Value is_sequence(Run&, const Bound& a) {
  const Value& v = a.at(0);
  return v.text() || v.dict() || v.range() || v.is_undefined() || (v.sequence() && v.sequence()->has_index());
}

Value is_iterable(Run&, const Bound& a) {
  const Value& v = a.at(0);
  return v.text() || v.dict() || v.range() || v.is_undefined() || v.sequence() || v.loop();
}

bool is_callable(const Value& v) { return v.callable() || v.is_undefined() || v.loop() || (v.turns() && !v.turns()->is_cycler); }

template <bool (*has)(std::string_view)>
Value is_known(Run& run, const Bound& a) {
  hash_key(run, a.at(0));
  return a.at(0).text() && has(*a.at(0).text());
}

const Builtin kTests[] = {
    {"!=", {"", ""}, 2, compare<Comparison::not_equal>},
    {"<", {"", ""}, 2, compare<Comparison::less>},
    {"<=", {"", ""}, 2, compare<Comparison::less_equal>},
    {"==", {"", ""}, 2, compare<Comparison::equal>},
    {">", {"", ""}, 2, compare<Comparison::greater>},
    {">=", {"", ""}, 2, compare<Comparison::greater_equal>},
    {"boolean", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).boolean() != nullptr; }},
    {"callable", {""}, 1, [](Run&, const Bound& a) -> Value { return is_callable(a.at(0)); }},
    {"defined", {"value"}, 1, [](Run&, const Bound& a) -> Value { return !a.at(0).is_undefined(); }},
    {"divisibleby", {"value", "num"}, 2, [](Run& run, const Bound& a) { return rest_is(run, a, a.at(1), 0); }},
    {"eq", {"", ""}, 2, compare<Comparison::equal>},
    {"equalto", {"", ""}, 2, compare<Comparison::equal>},
    {"escaped", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).is_markup(); }},
    {"even", {"value"}, 1, [](Run& run, const Bound& a) { return rest_is(run, a, i64{2}, 0); }},
    {"false", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).boolean() && !*a.at(0).boolean(); }},
    {"filter", {"value"}, 1, is_known<has_filter>},
    {"float", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).real() != nullptr; }},
    {"ge", {"", ""}, 2, compare<Comparison::greater_equal>},
    {"greaterthan", {"", ""}, 2, compare<Comparison::greater>},
    {"gt", {"", ""}, 2, compare<Comparison::greater>},
    {"in", {"value", "seq"}, 2, compare<Comparison::in>},
    {"integer", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).integer() != nullptr; }},
    {"iterable", {"value"}, 1, is_iterable},
    {"le", {"", ""}, 2, compare<Comparison::less_equal>},
    {"lessthan", {"", ""}, 2, compare<Comparison::less>},
    {"lower", {"value"}, 1, [](Run& run, const Bound& a) -> Value { return all_cased(run, to_text(run, a.at(0)), is_lower, is_upper); }},
    {"lt", {"", ""}, 2, compare<Comparison::less>},
    {"mapping", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).dict() != nullptr; }},
    {"ne", {"", ""}, 2, compare<Comparison::not_equal>},
    {"none", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).is_none(); }},
    {"number", {"value"}, 1, is_number},
    {"odd", {"value"}, 1, [](Run& run, const Bound& a) { return rest_is(run, a, i64{2}, 1); }},
    {"sameas", {"value", "other"}, 2, [](Run& run, const Bound& a) -> Value { return is_same(run, a.at(0), a.at(1)); }},
    {"sequence", {"value"}, 1, is_sequence},
    {"string", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).text() != nullptr; }},
    {"test", {"value"}, 1, is_known<has_test>},
    {"true", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).boolean() && *a.at(0).boolean(); }},
    {"undefined", {"value"}, 1, [](Run&, const Bound& a) -> Value { return a.at(0).is_undefined(); }},
    {"upper", {"value"}, 1, [](Run& run, const Bound& a) -> Value { return all_cased(run, to_text(run, a.at(0)), is_upper, is_lower); }},
};

}  // namespace

bool has_test(std::string_view name) { return find_builtin(kTests, name) != nullptr; }

bool apply_test(Run& run, std::string_view name, Arguments arguments) {
  const Builtin* test = find_builtin(kTests, name);
  if (!test) run.fail(fmt::format("expected a Jinja test that this program supports, got '{}'", name));
  return truth(call_builtin(run, "test", *test, std::move(arguments)));
}

}  // namespace spillway::data::chat
