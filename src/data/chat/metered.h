// The containers that hold what a rendering makes. Whatever they allocate is charged to the rendering that runs on this thread (run.h)
// before it is allocated, and given back when it is freed; so texts, lists and dicts cannot grow beyond the rendering's limits, whoever
// makes them. Outside of a rendering, as for the constants of a template's tree, nothing is charged.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spillway::data::chat {

/// Takes `bytes` from the limits of the rendering on this thread. Error(data) where they do not suffice.
void charge(size_t bytes);
/// Gives back what charge() took.
void release(size_t bytes) noexcept;

/// An allocator for the standard library's containers.
template <class T>
struct Metered {
  using value_type = T;

  Metered() = default;
  template <class U>
  Metered(const Metered<U>& /*other*/) {}

  T* allocate(size_t count) {
    charge(count * sizeof(T));
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* items, size_t count) noexcept {
    std::allocator<T>().deallocate(items, count);
    release(count * sizeof(T));
  }
  bool operator==(const Metered&) const { return true; }
};

using String = std::basic_string<char, std::char_traits<char>, Metered<char>>;

template <class T>
using List = std::vector<T, Metered<T>>;

template <class T, class... Arguments>
std::shared_ptr<T> make_metered(Arguments&&... arguments) {
  return std::allocate_shared<T>(Metered<T>(), std::forward<Arguments>(arguments)...);
}

}  // namespace spillway::data::chat
