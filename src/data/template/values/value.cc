#include "data/template/values/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

constexpr size_t kScanned = 8;  // dicts with at most so many entries are searched without an index

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

Value Value::undefined(std::string_view why) {
  Value value;
  value.held_ = Undefined{make_metered<String>(why)};
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
  if (turns()) return turns()->depth;
  if (callable()) return callable()->self.depth() + 1;
  return 0;
}

const Value* Dict::find(std::string_view key) const {
  if (!places.empty()) {
    const auto found = places.find(String("s").append(key));
    return found == places.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name.text() && *name.text() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(Run& run, const Value& key) const {
  if (key.text()) {
    run.spend_bytes(key.text()->size() * kScanned);
    return find(*key.text());
  }
  const String wanted = hash_key(run, key);
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
  String hashed = hash_key(run_, key);
  dict_->entries.emplace_back(std::move(key), std::move(value));
  if (dict_->entries.size() <= kScanned) return;
  for (size_t i = dict_->places.size(); i + 1 < dict_->entries.size(); ++i) {
    dict_->places.emplace(hash_key(run_, dict_->entries[i].first), i);
  }
  dict_->places.emplace(std::move(hashed), dict_->entries.size() - 1);
}

Value DictBuilder::done() {
  int inside = 0;
  for (const auto& [key, value] : dict_->entries) inside = std::max({inside, key.depth(), value.depth()});
  dict_->depth = deepest(run_, inside);
  return Value(std::shared_ptr<const Dict>(std::move(dict_)));
}

String hash_key(Run& run, const Value& value) {
  const auto printed = [](const char* form, const auto&... parts) { return String(fmt::format(fmt::runtime(form), parts...)); };
  const auto place = [&](const void* at) { return printed("p{}", at); };
  if (value.text()) return String("s").append(*value.text());
  if (value.is_none()) return "n";
  if (value.is_undefined()) return "u";
  if (const auto n = value.whole()) return printed("i{}", *n);
  if (const double* d = value.real()) {
    if (*d == std::trunc(*d) && fits_64_bits(*d)) return printed("i{}", static_cast<i64>(*d));
    return printed("d{}", *d);
  }
  if (const Sequence* s = value.sequence(); s && s->is_tuple()) {
    String key = "(";
    for (const Value& item : s->items) {
      const String part = hash_key(run, item);
      key.append(std::to_string(part.size())).append(":").append(part);
    }
    return key;
  }
  if (const Range* r = value.range()) {
    // Two ranges are equal if their items are equal, so the key is made of the size, the first item and the step.
    const i64 size = r->size();
    return printed("r{},{},{}", size, size > 0 ? r->start : 0, size > 1 ? r->step : 0);
  }
  // Python compares the remaining kinds of values by identity, so their address is the key.
  if (const Sequence* q = value.sequence(); q && (q->form == Form::generator || q->form == Form::values)) return place(q);
  if (value.space()) return place(value.space());
  if (value.loop()) return place(value.loop());
  if (value.turns()) return place(value.turns());
  if (value.callable()) return place(value.callable());
  run.fail(fmt::format("unhashable type: '{}'", type_name(value)));
}

Value make_sequence(Run& run, Form form, Values items) {
  run.spend(1 + static_cast<i64>(items.size()));
  auto sequence = make_metered<Sequence>();
  sequence->form = form;
  sequence->depth = deepest(run, deepest_of(items));
  sequence->items = std::move(items);
  return Value(std::shared_ptr<const Sequence>(std::move(sequence)));
}

Value make_list(Run& run, Values items) { return make_sequence(run, Form::list, std::move(items)); }

namespace {

// Returns a text of one character. All uses of an ASCII character share one text, because iterating over texts creates many.
Value character(std::string_view text) {
  static const auto shared = [] {
    std::array<Text, 128> all;
    for (size_t c = 0; c < all.size(); ++c) all[c] = std::make_shared<const String>(1, static_cast<char>(c));
    return all;
  }();
  return text.size() == 1 ? Value(shared[static_cast<u8>(text[0])]) : Value(text);
}

}  // namespace

std::shared_ptr<const Sequence> items_of(Run& run, const Value& value) {
  Values items;
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->form != Form::generator) return std::get<std::shared_ptr<const Sequence>>(value.held());
    items.assign(sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->taken), sequence->items.end());
    sequence->taken = sequence->items.size();
  } else if (const String* text = value.text()) {
    items.reserve(code_point_count(*text));
    for (size_t i = 0; i < text->size();) {
      const size_t bytes = code_point_bytes(*text, i);
      items.push_back(character(std::string_view(*text).substr(i, bytes)));
      i += bytes;
    }
  } else if (const Dict* dict = value.dict()) {
    items.reserve(dict->entries.size());
    for (const auto& entry : dict->entries) items.push_back(entry.first);
  } else if (const Range* range = value.range()) {
    items.reserve(static_cast<size_t>(range->size()));
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
  run.count_read(1);
  switch (json.type()) {
    case Type::null:
      return None{};
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<i64>();
    case Type::number_unsigned:
      if (json.get<u64>() > static_cast<u64>(std::numeric_limits<i64>::max()))
        run.fail(fmt::format("expected whole numbers that fit in 64 bits, got {}", json.get<u64>()));
      return json.get<i64>();
    case Type::number_float:
      return json.get<double>();
    case Type::string: {
      const auto& text = json.get_ref<const std::string&>();
      if (!is_utf8(text)) run.fail("expected texts in UTF-8, got other bytes in a message or a variable");
      run.count_read(text.size());
      return text;
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
        run.count_read(key.size());
        dict.set(key, from_json_at(run, item, depth + 1));
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
