// How filters, tests, methods and functions are called: each is a row of a table with its name, its parameters and its C++ function.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/value.h"

namespace spillway::data::chat {

/// Of a call, as written.
struct Arguments {
  Values plain;
  List<std::pair<String, Value>> named;
};

/// Of a call, by the parameter they are for; null where not given.
class Bound {
 public:
  explicit Bound(size_t parameters) : values_(parameters) {}
  const Value* operator[](size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  const Value& at(size_t i) const { return *values_[i]; }  // of a required one
  bool has(size_t i) const { return values_[i] && !values_[i]->is_none(); }
  void set(size_t i, Value value) { values_[i] = std::move(value); }

  // Of the types that Python would take, or a failure that names the parameter's place.
  i64 whole(Run& run, size_t i, i64 otherwise) const;
  bool flag(size_t i, bool otherwise) const;
  const String& text(Run& run, size_t i) const;
  String text(Run& run, size_t i, const char* otherwise) const;

 private:
  List<std::optional<Value>> values_;
};

struct Builtin {
  const char* name;
  std::vector<const char*> parameters;  // an empty word: cannot be named
  size_t required;
  Value (*run)(Run&, const Bound&);
};

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name);

/// Takes steps for the texts among the arguments, as if each were copied. Fails for too few, too many, unknown and doubled arguments;
/// `kind` and the builtin's name begin the message.
Value call_builtin(Run& run, const char* kind, const Builtin& builtin, Arguments arguments);

/// Filters by name; the value filtered is the first argument.
Value apply_filter(Run& run, std::string_view name, Arguments arguments);
bool has_filter(std::string_view name);
/// The filters that take their arguments by name, in three tables by what they are for.
std::span<const Builtin> text_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> list_filters();

/// Tests by name; the value tested is the first argument.
bool apply_test(Run& run, std::string_view name, Arguments arguments);
bool has_test(std::string_view name);

/// The functions that every template can call, macros aside.
bool has_function(std::string_view name);
Value call_function(Run& run, const std::string& name, Arguments arguments);

/// Of a namespace. Fails for names that begin with '_', as transformers does, and for those beyond kLongestName.
void set_attribute(Run& run, Space& space, std::string_view name, Value value);

/// Methods of texts, lists, tuples and dicts.
bool has_method(const Value& self, std::string_view name);
Value call_method(Run& run, const Value& self, const std::string& name, Arguments arguments);

}  // namespace spillway::data::chat
