// What `a.b`, `a['b']` and `a[1:2]` mean: Jinja's lookups inside Python's values, in its sandbox.
#pragma once
#include "data/chat/value.h"

namespace spillway::data::chat {

/// `owner.name`: a method or attribute, then a key. Undefined when there is none and for what the sandbox hides; fails on undefined.
Value get_attribute(Run& run, const Value& owner, std::string_view name);

/// `owner[key]`: an item, then a method or attribute. The same.
Value get_item(Run& run, const Value& owner, const Value& key);

/// `owner[start:stop:step]`; none where not given.
Value get_slice(Run& run, const Value& owner, const Value& start, const Value& stop, const Value& step);

/// Follows "a.b.0" from `item`, part by part as get_item; `key` is a text, a whole number or none. An undefined step becomes `otherwise`,
/// where that is given.
Value follow(Run& run, Value item, const Value& key, const Value* otherwise = nullptr);

}  // namespace spillway::data::chat
