# How everything is compiled. Asserts stay on in every build: a wrong number is worse than a slow one.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

# -ffp-contract=off: a fused multiply-add in one place and not in another would break bitwise parity.
# -Wno-restrict: GCC 12 warns inside std::string's own code (its bug 105329).
add_compile_options(-Wall -Wextra -Werror=switch -Wno-restrict -ffp-contract=off)
if(TROIKA_WERROR)
  add_compile_options(-Werror)
endif()

if(TROIKA_SANITIZE MATCHES "thread" AND TROIKA_SANITIZE MATCHES "address")
  message(FATAL_ERROR "TROIKA_SANITIZE=${TROIKA_SANITIZE}: thread and address can't be combined; build them apart.")
endif()
if(TROIKA_SANITIZE)
  add_compile_options(-fsanitize=${TROIKA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${TROIKA_SANITIZE})
  if(TROIKA_SANITIZE MATCHES "thread")
    add_compile_options(-Wno-tsan)  # atomic_thread_fence is not modelled; comm does not rely on it
  endif()
endif()

# A symbol that is missing shows when we link, not when a user's command opens the plug-in.
if(NOT TROIKA_SANITIZE)
  add_link_options(LINKER:--no-undefined)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
