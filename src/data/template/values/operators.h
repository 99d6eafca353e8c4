// Python's operators on template values: arithmetic, comparison and membership. They fail where Python raises a TypeError or a
// ZeroDivisionError, and also for whole numbers beyond 64 bits.
#pragma once
#include "data/template/values/value.h"

namespace spillway::data::chat {

enum class Operator : u8 { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison : u8 { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

Value apply(Run& run, Operator op, const Value& left, const Value& right);
Value negate(Run& run, const Value& value);
Value unary_plus(Run& run, const Value& value);

bool holds(Run& run, Comparison comparison, const Value& left, const Value& right);
bool equal(Run& run, const Value& left, const Value& right);
bool less(Run& run, const Value& left, const Value& right);
bool contains(Run& run, const Value& container, const Value& item);

}  // namespace spillway::data::chat
