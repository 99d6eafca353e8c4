// Measures how long a piece of work takes.
#pragma once
#include <chrono>

namespace spillway::parallel {

template <class Work>
double microseconds_of(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace spillway::parallel
