// Look-ups in values of a chat template, `a.b`, `a['b']` and `a[1:2]`, with the meaning of Jinja's sandbox over Python values.
#pragma once
#include "data/chat/value.h"

namespace spillway::data::chat {

/// Returns `owner.name`: a method or attribute, else the value of that key. The result is undefined if there is none, or if the sandbox
/// hides it. Fails if `owner` is undefined.
Value get_attribute(Run& run, const Value& owner, std::string_view name);

/// Returns `owner[key]`: an item, else a method or attribute. It is undefined, or fails, in the same cases as get_attribute().
Value get_item(Run& run, const Value& owner, const Value& key);

/// Returns `owner[start:stop:step]`. An argument that was not given is the value none.
Value get_slice(Run& run, const Value& owner, const Value& start, const Value& stop, const Value& step);

/// Follows a path such as "a.b.0" from `item`, using get_item() for each part. `key` is a text, a whole number or none. If `otherwise` is
/// given, it replaces a part's result that is undefined.
Value follow(Run& run, Value item, const Value& key, const Value* otherwise = nullptr);

}  // namespace spillway::data::chat
