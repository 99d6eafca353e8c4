// A value of the template language: Python's, as far as chat templates see them. Values never change once made, so they share what they
// hold; only a namespace's attributes can be set. The nesting of containers is bounded when they are made.
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
#include "data/chat/run.h"

namespace spillway::data::chat {

class Value;
struct Sequence;
struct Dict;
struct Loop;
struct Turns;
struct Callable;
struct Node;
struct Scope;

/// `why` says what was not there; null is an empty word.
struct Undefined {
  std::shared_ptr<const String> why;
};
struct None {};
struct Range {
  i64 start = 0, stop = 0, step = 1;
  i64 size() const;
  /// The item at `index`, which is below size(). The product may leave 64 bits on the way, the item does not.
  i64 at(i64 index) const { return static_cast<i64>(static_cast<u64>(start) + static_cast<u64>(index) * static_cast<u64>(step)); }
};
using Text = std::shared_ptr<const String>;
/// A text that `safe` or `escape` made: Python's markupsafe.Markup. It is a text for every purpose, but what is joined to it is escaped.
struct Markup {
  Text text;
};

class Value {
 public:
  using Held = std::variant<Undefined, None, bool, i64, double, Text, Markup, std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                            std::shared_ptr<const Range>, Space*, std::shared_ptr<const Loop>, std::shared_ptr<const Turns>,
                            std::shared_ptr<const Callable>>;

  Value() = default;  // undefined
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
  /// Of Markup too.
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

  /// Of an integer or a boolean, which is one in Python.
  std::optional<i64> whole() const;
  /// Of any number.
  std::optional<double> number() const;
  /// How deep containers nest in it; 0 for what holds nothing.
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

/// What Python has several types for: they differ in how they print, compare and can be indexed.
enum class Form : u8 { list, tuple, group, keys, values, items, generator };

struct Sequence {
  Form form = Form::list;
  Values items;
  int depth = 1;
  mutable size_t taken = 0;  // of a generator, which gives its items once
  bool is_list() const { return form == Form::list; }
  bool is_tuple() const { return form == Form::tuple || form == Form::group; }
  bool has_index() const { return is_list() || is_tuple(); }
  bool has_length() const { return form != Form::generator; }
};

/// Keeps the order in which keys came.
struct Dict {
  List<std::pair<Value, Value>> entries;
  // By hash_key, where there are more than a few. Ordered, so that nobody can choose keys that all take long to find.
  std::map<String, size_t, std::less<>, Metered<std::pair<const String, size_t>>> places;
  int depth = 1;
  /// Null when absent. A key that cannot be one (a list) fails, as in Python.
  const Value* find(Run& run, const Value& key) const;
  const Value* find(std::string_view key) const;
};

struct Space {
  List<std::pair<String, Value>> attributes;
};

/// The variable `loop` of one iteration.
struct Loop {
  std::shared_ptr<const Sequence> items;
  size_t index = 0;
  i64 depth = 1;                    // of recursive loops
  const Node* recursive = nullptr;  // the loop that a call of this goes through again
  std::weak_ptr<Scope> around;      // where it stands
  /// What the iterations of one loop share: the values that loop.changed() saw last, in a namespace that is made by its first call.
  std::shared_ptr<Space*> seen;
};

/// What cycler(…) makes, which hands out its items in turn, or joiner(…), whose first call gives an empty text and every other its item.
struct Turns {
  bool is_cycler = false;
  Values items;
  int depth = 1;
  mutable size_t at = 0;
};

struct Macro;
/// A built-in function (`name` alone), a method of `self`, or a macro, which the rendering keeps.
struct Callable {
  std::string name;
  Value self;
  const Macro* macro = nullptr;
};

/// Made with the nesting of their items checked.
Value make_sequence(Run& run, Form form, Values items);
Value make_list(Run& run, Values items);

/// Collects a dict; a key set again keeps its place and takes the new value.
class DictBuilder {
 public:
  explicit DictBuilder(Run& run) : run_(run), dict_(make_metered<Dict>()) {}
  void set(Value key, Value value);
  Value done();

 private:
  Run& run_;
  std::shared_ptr<Dict> dict_;
};

/// Equal for keys that Python takes for the same, 1, 1.0 and True among them. Fails for what is no key.
String hash_key(Run& run, const Value& value);

/// The items a loop sees. Fails with "… is not iterable" for what has none; undefined has none and does not fail.
std::shared_ptr<const Sequence> items_of(Run& run, const Value& value);

/// Python's bool(value).
bool truth(const Value& value);

/// Whether the whole part of `d` is a number of 64 bits.
inline bool fits_64_bits(double d) { return d >= -0x1p63 && d < 0x1p63; }

/// Python's name of the type, for messages.
std::string type_name(const Value& value);

/// Of JSON, which counts as read: objects keep their order. Fails for whole numbers beyond 64 bits, texts that are no UTF-8, and nesting
/// beyond kDeepest.
Value from_json(Run& run, const nlohmann::ordered_json& json);

}  // namespace spillway::data::chat
