# Own kernels are compiled once for each instruction set, with its flags: see src/cpu/vector/vector.h. LK_ISAS lists the sets of the
# library. Tests link `lockstep_emulated`, `lockstep_emulatedbf16` and `lockstep_emulatedamxbf16`, which run code for wide vectors and for
# tiles on any processor with AVX2.

set(LK_KERNELS "")
foreach(name isa_table blocks/direct_conv blocks/winograd_conv blocks/winograd_points dense/dense_product depthwise/depthwise_grad lanes/lanes_conv
             lanes/lanes_grad lanes/lanes_pool lanes/lanes_spread lanes/lanes_winograd lanes/lanes_winograd_points vector/interleave)
  list(APPEND LK_KERNELS ${PROJECT_SOURCE_DIR}/src/cpu/${name}.c)
endforeach()

# Those that are written for elements of bf16 too.
set(LK_BF16_KERNELS "")
foreach(name isa_table blocks/direct_conv blocks/winograd_conv blocks/winograd_points dense/dense_product lanes/lanes_conv
             lanes/lanes_grad lanes/lanes_pool lanes/lanes_spread)
  list(APPEND LK_BF16_KERNELS ${PROJECT_SOURCE_DIR}/src/cpu/${name}.c)
endforeach()

# Those that are written for tiles.
set(LK_TILE_KERNELS "")
foreach(name isa_table blocks/tile_conv blocks/tile_grad dense/tile_product lanes/tile_lanes_conv lanes/tile_lanes_grad
             lanes/tile_lanes_join lanes/tile_lanes_plane)
  list(APPEND LK_TILE_KERNELS ${PROJECT_SOURCE_DIR}/src/cpu/${name}.c)
endforeach()

set(LK_VECTOR_OF_avx2 LK_VECTOR_AVX2)
set(LK_VECTOR_OF_avx512 LK_VECTOR_AVX512)
set(LK_VECTOR_OF_avx512bf16 LK_VECTOR_AVX512 LK_VECTOR_BF16)
set(LK_VECTOR_OF_amxbf16 LK_VECTOR_AVX512 LK_VECTOR_BF16 LK_VECTOR_TILES)
set(LK_VECTOR_OF_emulated LK_VECTOR_EMULATED)
set(LK_VECTOR_OF_emulatedbf16 LK_VECTOR_EMULATED LK_VECTOR_BF16)
set(LK_VECTOR_OF_emulatedamxbf16 LK_VECTOR_EMULATED LK_VECTOR_BF16 LK_VECTOR_TILES)
set(LK_FLAGS_OF_avx512 -mavx512f -mavx512vl -mavx512bw -mavx512dq)
set(LK_FLAGS_OF_avx512bf16 ${LK_FLAGS_OF_avx512} -mavx512bf16)
set(LK_FLAGS_OF_amxbf16 ${LK_FLAGS_OF_avx512bf16} -mamx-tile -mamx-bf16)

# lk_for_isa(target isa): compiles the target for an instruction set.
function(lk_for_isa target isa)
  target_include_directories(${target} PRIVATE include src)
  target_compile_definitions(${target} PRIVATE ${LK_VECTOR_OF_${isa}})
  target_compile_options(${target} PRIVATE -mavx2 -mfma ${LK_FLAGS_OF_${isa}})
  if(LK_SANITIZE) # one of these files took gcc 38 s with the checks, and takes 11 so
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# lk_kernels(isa kind sources...): makes the library lockstep_ISA of kernels.
function(lk_kernels isa kind)
  add_library(lockstep_${isa} ${kind} ${ARGN})
  lk_for_isa(lockstep_${isa} ${isa})
endfunction()

set(LK_ISAS "")
if(ONEDNN_FOUND AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  lk_kernels(avx2 OBJECT ${LK_KERNELS})
  lk_kernels(avx512 OBJECT ${LK_KERNELS})
  lk_kernels(avx512bf16 OBJECT ${LK_BF16_KERNELS})
  lk_kernels(amxbf16 OBJECT ${LK_TILE_KERNELS})
  lk_kernels(emulated STATIC ${LK_KERNELS})
  lk_kernels(emulatedbf16 STATIC ${LK_BF16_KERNELS})
  lk_kernels(emulatedamxbf16 STATIC ${LK_TILE_KERNELS})
  set(LK_ISAS avx2 avx512 avx512bf16 amxbf16)
endif()

# Its loops are specialized by hand. gcc would take 13 s to specialize them once more, for no speed.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cpu/channels.c PROPERTIES COMPILE_OPTIONS
                            "$<$<C_COMPILER_ID:GNU>:-fno-unswitch-loops>")

# Its selections are vectorized only if comparisons may be made for both sides. That changes no value.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cpu/cpu_activation.c PROPERTIES COMPILE_OPTIONS -fno-trapping-math)
