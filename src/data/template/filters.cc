#include "data/template/values/builtins.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/template/access.h"
#include "data/template/values/text_format.h"

namespace spillway::data::chat {
namespace {

Value take_first(Run& run, Arguments& arguments, const char* what) {
  if (arguments.plain.empty()) run.fail(std::string("expected ") + what + ", got none");
  Value first = std::move(arguments.plain.front());
  arguments.plain.erase(arguments.plain.begin());
  return first;
}

Value take_named(Arguments& arguments, std::string_view name, Value otherwise) {
  const auto found = std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& a) { return a.first == name; });
  if (found == arguments.named.end()) return otherwise;
  Value value = std::move(found->second);
  arguments.named.erase(found);
  return value;
}

std::string_view name_of(Run& run, const Value& value, const char* what) {
  if (!value.text()) run.fail(std::string("expected the name of a ") + what + ", got '" + type_name(value) + "'");
  return *value.text();
}

Arguments with_item(const Arguments& arguments, Value item) {
  Arguments all = arguments;
  all.plain.insert(all.plain.begin(), std::move(item));
  return all;
}

Value map(Run& run, Arguments arguments) {
  const Value mapped = take_first(run, arguments, "a value for map");
  Values out;
  if (!truth(mapped)) return make_sequence(run, Form::generator, {});
  const bool by_attribute = arguments.plain.empty() && std::any_of(arguments.named.begin(), arguments.named.end(),
                                                                   [](const auto& a) { return a.first == "attribute"; });
  const auto items = items_of(run, mapped);
  if (by_attribute) {
    const Value attribute = take_named(arguments, "attribute", None{}), otherwise = take_named(arguments, "default", None{});
    if (!arguments.named.empty()) run.fail(fmt::format("Unexpected keyword argument '{}'", arguments.named.front().first));
    for (const Value& item : items->items) out.push_back(follow(run, item, attribute, &otherwise));
  } else {
    const Value filter = take_first(run, arguments, "a filter's name for map");
    for (const Value& item : items->items) out.push_back(apply_filter(run, name_of(run, filter, "filter"), with_item(arguments, item)));
  }
  return make_sequence(run, Form::generator, std::move(out));
}

// Selects the items for which a test holds. With `wanted` false, selects the items for which the test fails. Without a
// test, the item's truth decides. If `of_attribute` is true, one of the item's attributes is tested instead of the item.
template <bool wanted, bool of_attribute>
Value select(Run& run, Arguments arguments) {
  const Value from = take_first(run, arguments, "a value to select from");
  Values out;
  if (!truth(from)) return make_sequence(run, Form::generator, {});
  const Value attribute = of_attribute ? take_first(run, arguments, "an attribute's name") : Value(None{});
  const bool by_test = !arguments.plain.empty();
  const Value test = by_test ? take_first(run, arguments, "a test's name") : Value(None{});
  for (const auto all = items_of(run, from); const Value& item : all->items) {
    const Value tested = follow(run, item, attribute);
    const bool holds = by_test ? apply_test(run, name_of(run, test, "test"), with_item(arguments, tested)) : truth(tested);
    if (holds == wanted) out.push_back(item);
  }
  return make_sequence(run, Form::generator, std::move(out));
}

Value format(Run& run, Arguments arguments) {
  const Value form = take_first(run, arguments, "a format");
  if (!form.text()) run.fail("expected a text as a format, got '" + type_name(form) + "'");
  if (!arguments.plain.empty() && !arguments.named.empty()) run.fail("can't handle positional and keyword arguments at the same time");
  if (arguments.named.empty()) return percent_format(run, form, make_sequence(run, Form::tuple, std::move(arguments.plain)));
  DictBuilder named(run);
  for (auto& [name, value] : arguments.named) named.set(name, std::move(value));
  return percent_format(run, form, named.done());
}

// A filter that receives the arguments of the call as they were given, so that it can pass them on to another filter or test.
struct PassingFilter {
  const char* name;
  Value (*run)(Run&, Arguments);
};
const PassingFilter kPassing[] = {
    {"format", format},
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
};

const PassingFilter* find_passing(std::string_view name) {
  const auto* found = std::find_if(std::begin(kPassing), std::end(kPassing), [&](const PassingFilter& f) { return f.name == name; });
  return found == std::end(kPassing) ? nullptr : found;
}

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), number_filters(), list_filters()}) {
    if (const Builtin* found = find_builtin(table, name)) return found;
  }
  return nullptr;
}

}  // namespace

bool has_filter(std::string_view name) { return find_passing(name) || find_filter(name); }

Value apply_filter(Run& run, std::string_view name, Arguments arguments) {
  const Run::Level level(run);  // nested calls are counted because `map` may apply `map` again
  run.spend();
  if (const PassingFilter* passing = find_passing(name)) return passing->run(run, std::move(arguments));
  const Builtin* filter = find_filter(name);
  if (!filter) run.fail(fmt::format("expected a Jinja filter that this program supports, got '{}'", name));
  return call_builtin(run, "filter", *filter, std::move(arguments));
}

}  // namespace spillway::data::chat
