// Held<T> stores a value outside the object that it is a member of. The object's size then does not depend on T, and a file that does not
// use the T need not include T's header. So a new field in T makes only the files that use T compile again.
#pragma once

namespace spillway::trainer {

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

}  // namespace spillway::trainer
