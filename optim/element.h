// Reads and writes single elements of a column of bytes that may have any alignment.
#pragma once
#include <cstring>

#include "base/types.h"

namespace spillway::optim {

template <class T>
T load_element(const std::byte* column, i64 i) {
  T x;
  std::memcpy(&x, column + i * static_cast<i64>(sizeof(T)), sizeof(T));
  return x;
}

template <class T>
void store_element(std::byte* column, i64 i, T x) {
  std::memcpy(column + i * static_cast<i64>(sizeof(T)), &x, sizeof(T));
}

}  // namespace spillway::optim
