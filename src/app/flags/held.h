// A value that is stored apart from the object that contains it. A new option's field then changes neither the size of the configurations
// nor what a file must include that does not use the field, so that only the files that do are compiled again.
#pragma once

namespace spillway::app {

/// Owns a T, which may be an incomplete type here. A copy copies the T; a move is a copy, so that there always is a T. config.cc defines
/// the members for the types that configurations hold.
template <class T>
class Held {
 public:
  Held();
  Held(const Held& other);
  Held& operator=(const Held& other);
  ~Held();

  T* operator->() { return value_; }
  const T* operator->() const { return value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }

 private:
  T* const value_;
};

}  // namespace spillway::app
