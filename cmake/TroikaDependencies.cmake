# Libraries outside Troika (docs/dependencies.md says why each is here).
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(LibArchive REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)

find_library(TROIKA_TCMALLOC NAMES tcmalloc_minimal REQUIRED)

if(TROIKA_WITH_TORCH)
  find_package(tomlplusplus REQUIRED)
  # torch's own CMake package asks for CUDA, so the two libraries we need are imported by hand.
  if(NOT EXISTS "${TROIKA_TORCH_DIR}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "No LibTorch at ${TROIKA_TORCH_DIR}. Run tools/setup (or make setup), or pass "
                        "-DTROIKA_TORCH_DIR=<the torch folder of an unpacked wheel>, or use the preset lite.")
  endif()
  include(TroikaTorch)
endif()
