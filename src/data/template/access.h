// Look-ups in the values of a chat template: `a.b`, `a['b']` and `a[1:2]`. They
// have the meaning that Jinja's sandbox gives them, applied to Python values.
#pragma once
#include "data/template/values/value.h"

namespace spillway::data::chat {

/// Returns `owner.name`: the method or attribute of that name. If there is none, returns the value of that key.
/// The result is undefined if there is neither, or if the sandbox hides it. Fails if `owner` is undefined.
Value get_attribute(Run& run, const Value& owner, std::string_view name);

/// Returns `owner[key]`: the item under that key. If there is none, returns the method or attribute of that
/// name. The result is undefined if there is neither, or if the sandbox hides it. Fails if `owner` is undefined.
Value get_item(Run& run, const Value& owner, const Value& key);

/// Returns `owner[start:stop:step]`. For an argument that is not given, pass the value none.
Value get_slice(Run& run, const Value& owner, const Value& start, const Value& stop, const Value& step);

/// Follows a path such as "a.b.0" from `item`: get_item() is called for each part of the path. `key` is the path: a text, a whole
/// number, or none (the result is then `item`). If `otherwise` is given, it replaces the result of any part that is undefined.
Value follow(Run& run, Value item, const Value& key, const Value* otherwise = nullptr);

}  // namespace spillway::data::chat
