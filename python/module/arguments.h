// Reads numbers, text and paths from Python exactly. nanobind's own conversions round whole numbers to doubles, accept
// bools as whole numbers, and raise a TypeError for what they cannot read. The classes of this header remember a problem
// until the argument is used, which then raises a UsageError. Reading an argument needs the GIL; using it does not.
#pragma once
#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway::python {

namespace nb = nanobind;

/// The reason why an argument is wrong; an empty text means that it is valid.
struct Problem {
  std::string text;
  bool of_type = false;  // true if the argument has a wrong type; false if only its value is wrong
  /// Throws WrongType or WrongValue if there is a problem.
  void check() const;
};

/// Returns the problem of an argument `given` that does not have the type `wanted`.
Problem of_type(const char* wanted, const nb::handle& given);

/// An int, or an object with __index__ (such as NumPy's integers), within 64 bits. Bools and floats are refused.
class Whole {
 public:
  static Whole read(const nb::handle& given) noexcept;
  operator i64() const { return problem_.check(), value_; }  // NOLINT: it stands for the number
  /// Returns the number, which must fit in 32 bits, for axes and window sizes.
  int small() const;
  bool is_whole() const { return !problem_.of_type; }

 private:
  i64 value_ = 0;
  Problem problem_;
};

/// A seed: a whole number from 0 to 2^64 - 1.
class Seed {
 public:
  static Seed read(const nb::handle& given) noexcept;
  operator u64() const { return problem_.check(), value_; }  // NOLINT

 private:
  u64 value_ = 0;
  Problem problem_;
};

/// A number that is read as a double. A whole number must be exactly representable as a double. NaN and infinities are accepted.
class Real {
 public:
  static Real read(const nb::handle& given) noexcept;
  operator double() const { return problem_.check(), value_; }  // NOLINT
  bool is_number() const { return !problem_.of_type; }

 private:
  double value_ = 0;
  Problem problem_;
};

/// One whole number, or a short sequence of them: a shape, or axes.
class Wholes {
 public:
  static Wholes read(const nb::handle& given) noexcept;
  std::vector<i64> all() const;
  std::vector<int> small() const;

 private:
  std::vector<Whole> all_;
  Problem problem_;
};

/// A str without null characters that can be encoded in UTF-8.
class Word {
 public:
  static Word read(const nb::handle& given) noexcept;
  operator const std::string&() const { return problem_.check(), text_; }  // NOLINT
  const std::string& text() const { return *this; }

 private:
  std::string text_;
  Problem problem_;
};

/// A bool; other objects are refused even if they have a truth value.
class Flag {
 public:
  static Flag read(const nb::handle& given) noexcept;
  operator bool() const { return problem_.check(), value_; }  // NOLINT

 private:
  bool value_ = false;
  Problem problem_;
};

/// Returns the bytes of a str, bytes or os.PathLike in the file system's encoding. Throws WrongType or WrongValue on other objects and on a
/// null byte.
std::string path_of(const nb::handle& given);
/// Returns str(given) in UTF-8, for names of types and devices. Throws as Word does if the text cannot be encoded.
std::string words_of(const nb::handle& given);
/// Returns iter(given). Throws a WrongType with the text `otherwise` if `given` is not iterable, or if it is a str or bytes.
nb::object iterator_of(const nb::handle& given, const std::string& otherwise);
/// Returns the name of the object's Python type.
std::string kind_of(const nb::handle& given);

}  // namespace spillway::python

namespace nanobind::detail {

template <class Argument>
struct argument_caster {
  template <class T>
  using Cast = movable_cast_t<T>;
  template <class T>
  static constexpr bool can_cast() {
    return true;
  }
  using Value = Argument;
  explicit operator Argument*() { return &value; }
  explicit operator Argument&() { return value; }
  explicit operator Argument&&() { return static_cast<Argument&&>(value); }
  bool from_python(handle given, uint32_t, cleanup_list*) noexcept {
    value = Argument::read(given);
    return true;
  }
  Argument value;
};
template <>
struct type_caster<spillway::python::Whole> : argument_caster<spillway::python::Whole> {
  static constexpr auto Name = const_name("int");
};
template <>
struct type_caster<spillway::python::Seed> : argument_caster<spillway::python::Seed> {
  static constexpr auto Name = const_name("int");
};
template <>
struct type_caster<spillway::python::Real> : argument_caster<spillway::python::Real> {
  static constexpr auto Name = const_name("float");
};
template <>
struct type_caster<spillway::python::Wholes> : argument_caster<spillway::python::Wholes> {
  static constexpr auto Name = const_name("int | collections.abc.Sequence[int]");
};
template <>
struct type_caster<spillway::python::Word> : argument_caster<spillway::python::Word> {
  static constexpr auto Name = const_name("str");
};
template <>
struct type_caster<spillway::python::Flag> : argument_caster<spillway::python::Flag> {
  static constexpr auto Name = const_name("bool");
};

}  // namespace nanobind::detail
