#include "data/chat/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "data/python_text/code_points.h"

namespace spillway::data::chat {
namespace {

constexpr size_t kScanned = 8;  // entries of a dict that are found by looking at each

int deepest(const Run& run, int inside) {
  if (inside >= kDeepest) run.fail(fmt::format("expected values nested at most {} deep, got deeper ones", kDeepest));
  return inside + 1;
}

int deepest_of(const Values& items) {
  int inside = 0;
  for (const Value& item : items) inside = std::max(inside, item.depth());
  return inside;
}

}  // namespace

i64 Range::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const auto distance = step > 0 ? static_cast<u64>(stop) - static_cast<u64>(start) : static_cast<u64>(start) - static_cast<u64>(stop);
  const u64 stride = step > 0 ? static_cast<u64>(step) : u64{0} - static_cast<u64>(step);
  return static_cast<i64>(std::min<u64>((distance - 1) / stride + 1, std::numeric_limits<i64>::max()));
}

Value Value::undefined(std::string why) {
  Value value;
  value.held_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Space* Value::space() const {
  Space* const* space = std::get_if<Space*>(&held_);
  return space ? *space : nullptr;
}

std::optional<i64> Value::whole() const {
  if (boolean()) return *boolean() ? 1 : 0;
  return integer() ? std::optional(*integer()) : std::nullopt;
}

std::optional<double> Value::number() const {
  if (real()) return *real();
  const auto n = whole();
  return n ? std::optional(static_cast<double>(*n)) : std::nullopt;
}

int Value::depth() const {
  if (sequence()) return sequence()->depth;
  if (dict()) return dict()->depth;
  if (loop()) return loop()->items->depth + 1;
  if (turns()) return deepest_of(turns()->items) + 1;
  if (callable()) return callable()->self.depth() + 1;
  return 0;
}

const Value* Dict::find(std::string_view key) const {
  if (!places.empty()) {
    const auto found = places.find("s" + std::string(key));
    return found == places.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name.text() && *name.text() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(const Run& run, const Value& key) const {
  if (key.text()) return find(*key.text());
  const std::string wanted = hash_key(run, key);
  if (!places.empty()) {
    const auto found = places.find(wanted);
    return found == places.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (!name.text() && hash_key(run, name) == wanted) return &value;
  }
  return nullptr;
}

void DictBuilder::set(Value key, Value value) {
  run_.spend(2);
  if (const Value* old = dict_->find(run_, key)) {
    *const_cast<Value*>(old) = std::move(value);
    return;
  }
  hash_key(run_, key);
  dict_->entries.emplace_back(std::move(key), std::move(value));
  if (dict_->entries.size() <= kScanned) return;
  for (size_t i = dict_->places.size(); i < dict_->entries.size(); ++i) {
    dict_->places.emplace(hash_key(run_, dict_->entries[i].first), i);
  }
}

Value DictBuilder::done() {
  int inside = 0;
  for (const auto& [key, value] : dict_->entries) inside = std::max({inside, key.depth(), value.depth()});
  dict_->depth = deepest(run_, inside);
  return Value(std::shared_ptr<const Dict>(std::move(dict_)));
}

std::string hash_key(const Run& run, const Value& value) {
  if (value.text()) return "s" + *value.text();
  if (value.is_none()) return "n";
  if (value.is_undefined()) return "u";
  if (const auto n = value.whole()) return fmt::format("i{}", *n);
  if (const double* d = value.real()) {
    if (*d == std::trunc(*d) && std::abs(*d) < 0x1p63) return fmt::format("i{}", static_cast<i64>(*d));
    return fmt::format("d{}", *d);
  }
  if (const Sequence* s = value.sequence(); s && s->is_tuple()) {
    std::string key = "(";
    for (const Value& item : s->items) {
      const std::string part = hash_key(run, item);
      key += fmt::format("{}:{}", part.size(), part);
    }
    return key;
  }
  if (const Range* r = value.range()) return fmt::format("r{},{},{}", r->start, r->size(), r->step);
  // What Python knows by its place.
  if (const Sequence* q = value.sequence(); q && (q->form == Form::generator || q->form == Form::values))
    return fmt::format("p{}", static_cast<const void*>(q));
  if (value.space()) return fmt::format("p{}", static_cast<const void*>(value.space()));
  if (value.loop()) return fmt::format("p{}", static_cast<const void*>(value.loop()));
  if (value.turns()) return fmt::format("p{}", static_cast<const void*>(value.turns()));
  if (value.callable()) return fmt::format("p{}", static_cast<const void*>(value.callable()));
  run.fail(fmt::format("unhashable type: '{}'", type_name(value)));
}

Value make_sequence(Run& run, Form form, Values items) {
  run.spend(1 + static_cast<i64>(items.size()));
  auto sequence = std::make_shared<Sequence>();
  sequence->form = form;
  sequence->depth = deepest(run, deepest_of(items));
  sequence->items = std::move(items);
  return Value(std::shared_ptr<const Sequence>(std::move(sequence)));
}

Value make_list(Run& run, Values items) { return make_sequence(run, Form::list, std::move(items)); }

Value make_text(Run& run, std::string text) {
  run.spend_bytes(text.size());
  return Value(std::move(text));
}

std::shared_ptr<const Sequence> items_of(Run& run, const Value& value) {
  Values items;
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->form != Form::generator) return std::get<std::shared_ptr<const Sequence>>(value.held());
    items.assign(sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->taken), sequence->items.end());
    sequence->taken = sequence->items.size();
  } else if (const std::string* text = value.text()) {
    run.spend(static_cast<i64>(text->size()));
    for (size_t i = 0; i < text->size();) {
      const size_t bytes = code_point_bytes(*text, i);
      items.emplace_back(text->substr(i, bytes));
      i += bytes;
    }
  } else if (const Dict* dict = value.dict()) {
    for (const auto& entry : dict->entries) items.push_back(entry.first);
  } else if (const Range* range = value.range()) {
    run.spend(range->size());
    for (i64 i = 0; i < range->size(); ++i) items.emplace_back(range->at(i));
  } else if (!value.is_undefined()) {
    run.fail(fmt::format("'{}' object is not iterable", type_name(value)));
  }
  return std::get<std::shared_ptr<const Sequence>>(make_list(run, std::move(items)).held());
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto n = value.number()) return *n != 0;
  if (value.text()) return !value.text()->empty();
  if (const Sequence* s = value.sequence()) return s->form == Form::generator || !s->items.empty();
  if (value.dict()) return !value.dict()->entries.empty();
  if (value.range()) return value.range()->size() > 0;
  return true;
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.boolean()) return "bool";
  if (value.integer()) return "int";
  if (value.real()) return "float";
  if (value.text()) return value.is_markup() ? "Markup" : "str";
  if (value.dict()) return "dict";
  if (value.range()) return "range";
  if (value.space()) return "namespace";
  if (value.loop()) return "LoopContext";
  if (value.turns()) return value.turns()->is_cycler ? "Cycler" : "Joiner";
  if (value.callable()) return "function";
  constexpr const char* names[] = {"list", "tuple", "tuple", "dict_keys", "dict_values", "dict_items", "generator"};
  return names[static_cast<size_t>(value.sequence()->form)];
}

namespace {

Value from_json_at(Run& run, const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kDeepest) run.fail(fmt::format("expected messages and variables nested at most {} deep, got deeper ones", kDeepest));
  run.spend();
  switch (json.type()) {
    case Type::null:
      return None{};
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<i64>();
    case Type::number_unsigned:
      if (json.get<u64>() > static_cast<u64>(std::numeric_limits<i64>::max()))
        run.fail(fmt::format("expected whole numbers of 64 bits, got {}", json.get<u64>()));
      return json.get<i64>();
    case Type::number_float:
      return json.get<double>();
    case Type::string: {
      const auto& text = json.get_ref<const std::string&>();
      if (!is_utf8(text)) run.fail("expected texts in UTF-8, got other bytes in a message or a variable");
      return make_text(run, text);
    }
    case Type::array: {
      Values items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json_at(run, item, depth + 1));
      return make_list(run, std::move(items));
    }
    case Type::object: {
      DictBuilder dict(run);
      for (const auto& [key, item] : json.items()) {
        if (!is_utf8(key)) run.fail("expected keys in UTF-8, got other bytes in a message or a variable");
        dict.set(make_text(run, key), from_json_at(run, item, depth + 1));
      }
      return dict.done();
    }
    default:
      run.fail("expected JSON in messages and variables, got bytes");
  }
}

}  // namespace

Value from_json(Run& run, const nlohmann::ordered_json& json) { return from_json_at(run, json, 0); }

}  // namespace spillway::data::chat
