// Tables of the built-in filters, tests, methods and functions of chat templates, and functions that call them. Each table row has a name,
// the parameters and a C++ function.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/template/values/value.h"

namespace spillway::data::chat {

/// The arguments of a call, as the template writes them.
struct Arguments {
  Values plain;
  List<std::pair<String, Value>> named;
};

/// The arguments of a call, assigned to the parameters by index. A parameter without an argument has null.
class Bound {
 public:
  explicit Bound(size_t parameters) : values_(parameters) {}
  const Value* operator[](size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  const Value& at(size_t i) const { return *values_[i]; }  // returns a required argument, which always has a value
  bool has(size_t i) const { return values_[i] && !values_[i]->is_none(); }
  void set(size_t i, Value value) { values_[i] = std::move(value); }

  // whole(), flag() and text() return argument `i` as a value of that type, if Python would accept it as such. Otherwise they fail with a
  // message that states `i`.
  i64 whole(Run& run, size_t i, i64 otherwise) const;
  bool flag(size_t i, bool otherwise) const;
  const String& text(Run& run, size_t i) const;
  String text(Run& run, size_t i, const char* otherwise) const;

 private:
  List<std::optional<Value>> values_;
};

struct Builtin {
  const char* name;
  std::vector<const char*> parameters;  // names of the parameters; a parameter with an empty name cannot be given by keyword
  size_t required;
  Value (*run)(Run&, const Bound&);
};

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name);

/// Calls a builtin and charges steps for copying the texts among the arguments. Fails if there are too
/// few, too many, unknown or duplicate arguments; the message begins with `kind` and the builtin's name.
Value call_builtin(Run& run, const char* kind, const Builtin& builtin, Arguments arguments);

/// Applies the filter called `name`. The first argument is the value to filter.
Value apply_filter(Run& run, std::string_view name, Arguments arguments);
bool has_filter(std::string_view name);
/// The filters whose arguments may be given by name, in three tables by purpose.
std::span<const Builtin> text_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> list_filters();

/// Applies the test called `name`. The first argument is the value to test.
bool apply_test(Run& run, std::string_view name, Arguments arguments);
bool has_test(std::string_view name);

/// has_function() returns whether one of the functions that every template can call has the name
/// `name`; call_function() calls it. A template's own macros are not among these functions.
bool has_function(std::string_view name);
Value call_function(Run& run, const std::string& name, Arguments arguments);

/// Sets an attribute of a namespace. Fails if the name is longer than kLongestName.
/// Also fails if it begins with '_', which transformers does not allow.
void set_attribute(Run& run, Space& space, std::string_view name, Value value);

/// has_method() returns whether `self`, a text, list, tuple or dict, has a method called `name`; call_method() calls it.
bool has_method(const Value& self, std::string_view name);
Value call_method(Run& run, const Value& self, const std::string& name, Arguments arguments);

}  // namespace spillway::data::chat
