// Value is a value of the template language. A Value behaves like a Python value, as far as chat
// templates can tell. Values are immutable and share their contents; only the attributes of a
// namespace can be set. When a container is created, a limit on the nesting of containers is checked.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/types.h"
#include "data/template/values/run.h"

namespace spillway::data::chat {

class Value;
struct Sequence;
struct Dict;
struct Loop;
struct Turns;
struct Callable;
struct Node;
struct Scope;

/// The result of a look-up that found nothing. `why` says what was missing; a null `why` stands for an empty text.
struct Undefined {
  std::shared_ptr<const String> why;
};
struct None {};
struct Range {
  i64 start = 0, stop = 0, step = 1;
  i64 size() const;
  /// Returns the item at `index`, which must be below size(). The product index * step may overflow 64 bits, but adding the start wraps
  /// the result back to the right value.
  i64 at(i64 index) const { return static_cast<i64>(static_cast<u64>(start) + static_cast<u64>(index) * static_cast<u64>(step)); }
};
using Text = std::shared_ptr<const String>;
/// A text made by the filter `safe` or `escape`, like Python's markupsafe.Markup. Text
/// that is joined to a Markup is escaped; otherwise a Markup behaves like a text.
struct Markup {
  Text text;
};

class Value {
 public:
  using Held = std::variant<Undefined, None, bool, i64, double, Text, Markup, std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                            std::shared_ptr<const Range>, Space*, std::shared_ptr<const Loop>, std::shared_ptr<const Turns>,
                            std::shared_ptr<const Callable>>;

  Value() = default;  // creates an undefined value
  Value(None none) : held_(none) {}
  Value(bool b) : held_(b) {}
  Value(i64 i) : held_(i) {}
  Value(double d) : held_(d) {}
  Value(String text) : held_(Text(make_metered<String>(std::move(text)))) {}
  Value(std::string_view text) : Value(String(text)) {}
  Value(const std::string& text) : Value(String(text)) {}
  Value(const char* text) : Value(String(text)) {}
  Value(Text text) : held_(std::move(text)) {}
  Value(Markup markup) : held_(std::move(markup)) {}
  Value(Range range) : held_(std::shared_ptr<const Range>(make_metered<Range>(range))) {}
  Value(Space* space) : held_(space) {}
  Value(std::shared_ptr<const Sequence> s) : held_(std::move(s)) {}
  Value(std::shared_ptr<const Dict> d) : held_(std::move(d)) {}
  Value(std::shared_ptr<const Loop> l) : held_(std::move(l)) {}
  Value(std::shared_ptr<const Turns> t) : held_(std::move(t)) {}
  Value(std::shared_ptr<const Callable> c) : held_(std::move(c)) {}
  static Value undefined(std::string_view why);

  bool is_undefined() const { return std::holds_alternative<Undefined>(held_); }
  bool is_none() const { return std::holds_alternative<None>(held_); }
  const bool* boolean() const { return std::get_if<bool>(&held_); }
  const i64* integer() const { return std::get_if<i64>(&held_); }
  const double* real() const { return std::get_if<double>(&held_); }
  /// Returns the text of a text or of Markup; null for any other value.
  const String* text() const { return is_markup() ? std::get<Markup>(held_).text.get() : pointee<String>(); }
  bool is_markup() const { return std::holds_alternative<Markup>(held_); }
  const Sequence* sequence() const { return pointee<Sequence>(); }
  const Dict* dict() const { return pointee<Dict>(); }
  const Range* range() const { return pointee<Range>(); }
  Space* space() const;
  const Loop* loop() const { return pointee<Loop>(); }
  const Turns* turns() const { return pointee<Turns>(); }
  const Callable* callable() const { return pointee<Callable>(); }
  const Held& held() const { return held_; }

  /// Returns the whole number that the value holds. A boolean counts as 0 or 1, because it is an integer in Python. Returns nothing for any
  /// other value.
  std::optional<i64> whole() const;
  /// Returns the value of any kind of number as a double. Returns nothing if the value is not a number.
  std::optional<double> number() const;
  /// Returns how deep containers are nested in this value, or 0 if the value is not a container.
  int depth() const;

 private:
  template <class T>
  const T* pointee() const {
    const auto* shared = std::get_if<std::shared_ptr<const T>>(&held_);
    return shared ? shared->get() : nullptr;
  }
  Held held_;
};

using Values = List<Value>;

/// Python's sequence types, which all use the struct Sequence. They differ in
/// how they print, in how they compare, and in whether they can be indexed.
enum class Form : u8 { list, tuple, group, keys, values, items, generator };

struct Sequence {
  Form form = Form::list;
  Values items;
  int depth = 1;
  mutable size_t taken = 0;  // the number of items that a generator has yielded; it yields each item once
  bool is_list() const { return form == Form::list; }
  bool is_tuple() const { return form == Form::tuple || form == Form::group; }
  bool has_index() const { return is_list() || is_tuple(); }
  bool has_length() const { return form != Form::generator; }
};

/// A dict. Its entries are in the order in which they were inserted.
struct Dict {
  List<std::pair<Value, Value>> entries;
  // The index of the entries by hash_key(), used if there are more than a few entries. The index is
  // a tree rather than a hash table, so that nobody can make look-ups slow by the choice of keys.
  std::map<String, size_t, std::less<>, Metered<std::pair<const String, size_t>>> places;
  int depth = 1;
  /// Returns the value of a key, or null if the dict does not have the key. Fails, as in Python, for a value that cannot be a key, such as
  /// a list.
  const Value* find(Run& run, const Value& key) const;
  const Value* find(std::string_view key) const;
};

struct Space {
  List<std::pair<String, Value>> attributes;
};

/// The value of the variable `loop` in one iteration of a loop.
struct Loop {
  std::shared_ptr<const Sequence> items;
  size_t index = 0;
  i64 depth = 1;                    // how deep the loop's recursive calls are nested, counted from 1
  const Node* recursive = nullptr;  // the loop that a call of `loop` runs again
  std::weak_ptr<Scope> around;      // the scope that encloses the loop
  /// The arguments of the previous call of loop.changed(), which all iterations of a loop share. They are kept in a namespace that the
  /// first call creates.
  std::shared_ptr<Space*> seen;
};

/// The result of cycler(…) or of joiner(…). A cycler returns its items in turn. A joiner returns an empty text at the first call, and its
/// item at every later call.
struct Turns {
  bool is_cycler = false;
  Values items;
  int depth = 1;
  mutable size_t at = 0;
};

struct Macro;
/// A value that can be called: a built-in function (then only `name` is set), a method of `self`, or a macro, which the rendering owns.
struct Callable {
  std::string name;
  Value self;
  const Macro* macro = nullptr;
};

/// make_sequence() and make_list() create sequences. They fail if the items are nested too deeply.
Value make_sequence(Run& run, Form form, Values items);
Value make_list(Run& run, Values items);

/// Builds a dict. If a key is set again, it keeps its position and gets the new value.
class DictBuilder {
 public:
  explicit DictBuilder(Run& run) : run_(run), dict_(make_metered<Dict>()) {}
  void set(Value key, Value value);
  Value done();

 private:
  Run& run_;
  std::shared_ptr<Dict> dict_;
};

/// Returns a text that represents a key of a dict. Keys that Python considers equal, such as 1, 1.0 and True, have the same text. Fails if
/// the value cannot be a key.
String hash_key(Run& run, const Value& value);

/// Returns the items over which a loop iterates. An undefined value has no items. Fails with "… is not iterable" for values that Python
/// cannot iterate over.
std::shared_ptr<const Sequence> items_of(Run& run, const Value& value);

/// Returns Python's bool(value).
bool truth(const Value& value);

/// Returns true if the whole part of `d` fits into a signed integer of 64 bits.
inline bool fits_64_bits(double d) { return d >= -0x1p63 && d < 0x1p63; }

/// Returns the name that Python gives to the value's type, for error messages.
std::string type_name(const Value& value);

/// Converts a JSON value. Its bytes are counted as input (Run::count_read), and objects keep the order of their keys. Fails for whole
/// numbers beyond 64 bits, for texts that are not UTF-8, and for nesting deeper than kDeepest.
Value from_json(Run& run, const nlohmann::ordered_json& json);

}  // namespace spillway::data::chat
