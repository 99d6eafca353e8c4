// Implements the functions that transformers provides to every chat template.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "data/template/values/builtins.h"
#include "data/template/values/print_value.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

constexpr i64 kLongestRange = 100'000;  // limit on the number of items of a range; Jinja's sandbox has the same

Value range(Run& run, const Bound& a) {
  Range made;
  if (a[1]) {
    made = {a.whole(run, 0, 0), a.whole(run, 1, 0), a.whole(run, 2, 1)};
  } else {
    made.stop = a.whole(run, 0, 0);
  }
  if (made.step == 0) run.fail("range() arg 3 must not be zero");
  if (made.size() > kLongestRange)
    run.fail(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kLongestRange));
  return made;
}

Value raise_exception(Run& run, const Bound& a) { run.fail(std::string(to_text(run, a.at(0)))); }

// Translates Python's date format for C's strftime. The flags and widths that glibc allows are
// kept. %z and %Z are removed, because Python prints nothing for them when a time has no time zone.
std::string c_format(Run& run, std::string_view format) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const size_t begin = i;
    if (format[i] == '%') {
      ++i;
      while (i < format.size() && std::string_view("-_0^#").find(format[i]) != std::string_view::npos) ++i;
      for (const size_t first = i; i < format.size() && digit(format[i]) && i < first + 2;) ++i;
      const bool zone = i == begin + 1 && i < format.size() && (format[i] == 'z' || format[i] == 'Z');
      if (zone) continue;
      if (i == format.size() || std::string_view("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%").find(format[i]) == std::string_view::npos)
        run.fail(fmt::format("expected a date format that strftime supports, got '{}'", format));
    }
    out.append(format.substr(begin, i + 1 - begin));
  }
  return out;
}

Value strftime_now(Run& run, const Bound& a) {
  if (a.text(run, 0).size() > 200) run.fail("expected a date format of at most 200 bytes, got a longer one");
  const std::string format = c_format(run, a.text(run, 0));
  const std::time_t now = run.now();
  std::tm parts{};
  if (!::localtime_r(&now, &parts)) run.fail("expected the current local time, got an error from the system");
  std::array<char, 1024> text;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const size_t length = std::strftime(text.data(), text.size(), format.c_str(), &parts);
#pragma GCC diagnostic pop
  return std::string_view(text.data(), length);
}

Value turns(Run& run, bool is_cycler, Values given) {
  const Value items = make_list(run, std::move(given));  // make_list() fails if the values are nested too deeply
  return std::shared_ptr<const Turns>(make_metered<Turns>(Turns{is_cycler, items.sequence()->items, items.depth()}));
}

Value joiner(Run& run, const Bound& a) { return turns(run, false, {a[0] ? a.at(0) : Value(", ")}); }

Value cycler(Run& run, Arguments arguments) {
  if (!arguments.named.empty()) run.fail(fmt::format("cycler() got an unexpected keyword argument '{}'", arguments.named.front().first));
  if (arguments.plain.empty()) run.fail("at least one item has to be provided");
  return turns(run, true, std::move(arguments.plain));
}

const Builtin kFunctions[] = {
    {"joiner", {"sep"}, 0, joiner},
    {"raise_exception", {"message"}, 1, raise_exception},
    {"range", {"", "", ""}, 1, range},
    {"strftime_now", {"format"}, 1, strftime_now},
};

// Returns the key-value pairs for dict(…) and namespace(…): first the pairs of the
// first argument, which is a dict or a list of pairs, then the keyword arguments.
List<std::pair<Value, Value>> pairs_of(Run& run, const std::string& name, const Arguments& arguments) {
  if (arguments.plain.size() > 1) run.fail(fmt::format("{} expected at most 1 argument, got {}", name, arguments.plain.size()));
  List<std::pair<Value, Value>> pairs;
  if (!arguments.plain.empty()) {
    const Value& first = arguments.plain.front();
    if (first.dict()) {
      pairs = first.dict()->entries;
    } else {
      for (const auto all = items_of(run, first); const Value& item : all->items) {
        const auto pair = items_of(run, item);
        if (pair->items.size() != 2)
          run.fail(fmt::format("expected pairs of a key and a value for {}(), got an item of {} values", name, pair->items.size()));
        pairs.emplace_back(pair->items[0], pair->items[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.named) pairs.emplace_back(key, value);
  return pairs;
}

}  // namespace

bool has_function(std::string_view name) {
  constexpr std::array<std::string_view, 4> kOthers = {"cycler", "dict", "lipsum", "namespace"};
  return find_builtin(kFunctions, name) || std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
}

Value call_function(Run& run, const std::string& name, Arguments arguments) {
  if (name == "dict") {
    DictBuilder dict(run);
    for (auto& [key, value] : pairs_of(run, name, arguments)) dict.set(std::move(key), std::move(value));
    return dict.done();
  }
  if (name == "namespace") {
    Space* space = run.new_space();
    for (auto& [key, value] : pairs_of(run, name, arguments)) {
      if (!key.text()) run.fail("expected texts as the keys of namespace(), got '" + type_name(key) + "'");
      set_attribute(run, *space, *key.text(), std::move(value));
    }
    return space;
  }
  if (name == "cycler") return cycler(run, std::move(arguments));
  const Builtin* function = find_builtin(kFunctions, name);
  if (!function) run.fail("expected a Jinja function that this program supports, got " + name + "()");
  return call_builtin(run, "function", *function, std::move(arguments));
}

void set_attribute(Run& run, Space& space, std::string_view name, Value value) {
  if (name.starts_with('_')) run.fail(fmt::format("expected an attribute that does not begin with '_', got '{}'", name));
  if (name.size() > kLongestName)
    run.fail(fmt::format("expected an attribute's name of at most {} bytes, got {}", kLongestName, name.size()));
  run.spend(1 + static_cast<i64>(space.attributes.size() / kScannedInAStep));
  const auto found = std::find_if(space.attributes.begin(), space.attributes.end(), [&](const auto& a) { return a.first == name; });
  if (found != space.attributes.end()) {
    found->second = std::move(value);
  } else {
    space.attributes.emplace_back(name, std::move(value));
  }
}

}  // namespace spillway::data::chat
