using System;
using System.Runtime.InteropServices;

namespace Oxpipe
{
    /// <summary>An IEEE 754 binary16 number, as its bits.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public readonly struct Float16 : IEquatable<Float16>
    {
        public readonly ushort Bits;

        public Float16(ushort bits)
        {
            Bits = bits;
        }

        /// <summary>The nearest, ties to even; beyond 65504 infinity.</summary>
        public static unsafe explicit operator Float16(float value)
        {
            uint bits = *(uint*)&value;
            uint sign = bits >> 16 & 0x8000;
            uint magnitude = bits & 0x7FFFFFFF;
            if (magnitude > 0x7F800000)
            {
                return new Float16((ushort)(sign | 0x7E00));
            }
            // 65520 is the first that rounds to 2^16.
            if (magnitude >= 0x477FF000)
            {
                return new Float16((ushort)(sign | 0x7C00));
            }
            if (magnitude >= 0x38800000)
            {
                // Normal: the exponent's bias goes from 127 to 15, 13 bits of the fraction go.
                uint rebiased = magnitude - 0x38000000;
                return new Float16((ushort)(sign | (rebiased + 0x0FFF + (rebiased >> 13 & 1)) >> 13));
            }
            // Subnormal: a multiple of 2^-24, which Math.Round takes to even.
            double steps = Math.Round(Math.Abs((double)value) * 16777216.0);
            return new Float16((ushort)(sign | (uint)steps));
        }

        public static explicit operator float(Float16 value)
        {
            int exponent = value.Bits >> 10 & 0x1F;
            int fraction = value.Bits & 0x3FF;
            double magnitude;
            if (exponent == 0x1F)
            {
                magnitude = fraction == 0 ? double.PositiveInfinity : double.NaN;
            }
            else if (exponent == 0)
            {
                magnitude = fraction / 16777216.0;
            }
            else
            {
                magnitude = (1024 + fraction) * Math.Pow(2, exponent - 25);
            }
            return (float)((value.Bits & 0x8000) == 0 ? magnitude : -magnitude);
        }

        public bool Equals(Float16 other)
        {
            return Bits == other.Bits;
        }

        public override bool Equals(object other)
        {
            return other is Float16 && Equals((Float16)other);
        }

        public override int GetHashCode()
        {
            return Bits;
        }
    }

    /// <summary>The upper half of an IEEE 754 binary32 number, as its bits.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public readonly struct BFloat16 : IEquatable<BFloat16>
    {
        public readonly ushort Bits;

        public BFloat16(ushort bits)
        {
            Bits = bits;
        }

        /// <summary>The nearest, ties to even.</summary>
        public static unsafe explicit operator BFloat16(float value)
        {
            uint bits = *(uint*)&value;
            if ((bits & 0x7FFFFFFF) > 0x7F800000)
            {
                return new BFloat16((ushort)(bits >> 16 | 0x40));
            }
            return new BFloat16((ushort)(bits + 0x7FFF + (bits >> 16 & 1) >> 16));
        }

        public static unsafe explicit operator float(BFloat16 value)
        {
            uint bits = (uint)value.Bits << 16;
            return *(float*)&bits;
        }

        public bool Equals(BFloat16 other)
        {
            return Bits == other.Bits;
        }

        public override bool Equals(object other)
        {
            return other is BFloat16 && Equals((BFloat16)other);
        }

        public override int GetHashCode()
        {
            return Bits;
        }
    }

    /// <summary>An 8-bit float of 4 exponent and 3 fraction bits, finite and NaN only, as its bits.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public readonly struct Float8E4M3FN
    {
        public readonly byte Bits;

        public Float8E4M3FN(byte bits)
        {
            Bits = bits;
        }
    }

    /// <summary>An 8-bit float of 5 exponent and 2 fraction bits, as its bits.</summary>
    [StructLayout(LayoutKind.Sequential)]
    public readonly struct Float8E5M2
    {
        public readonly byte Bits;

        public Float8E5M2(byte bits)
        {
            Bits = bits;
        }
    }

    /// <summary>Data types and the C# types of their elements.</summary>
    public static unsafe class DataTypes
    {
        /// <summary>The data type of tensors of T. NotSupportedException if there is none.</summary>
        public static DataType Of<T>() where T : struct
        {
            DataType found = Known<T>.DataType;
            if (found == DataType.Other)
            {
                throw new NotSupportedException("no tensor has elements of the type " + typeof(T));
            }
            return found;
        }

        /// <summary>Bytes of one element.</summary>
        public static int SizeOf(DataType type)
        {
            return (int)NativeMethods.oxp_dtype_size((uint)type);
        }

        /// <summary>ONNX's name in lower case, "float32".</summary>
        public static string NameOf(DataType type)
        {
            return Calls.Text(NativeMethods.oxp_dtype_name((uint)type));
        }

        private static class Known<T>
        {
            internal static readonly DataType DataType = Find(typeof(T));
        }

        private static DataType Find(Type type)
        {
            if (type == typeof(float)) { return DataType.Float32; }
            if (type == typeof(byte)) { return DataType.UInt8; }
            if (type == typeof(sbyte)) { return DataType.Int8; }
            if (type == typeof(ushort)) { return DataType.UInt16; }
            if (type == typeof(short)) { return DataType.Int16; }
            if (type == typeof(int)) { return DataType.Int32; }
            if (type == typeof(long)) { return DataType.Int64; }
            if (type == typeof(bool)) { return DataType.Bool; }
            if (type == typeof(uint)) { return DataType.UInt32; }
            if (type == typeof(ulong)) { return DataType.UInt64; }
            if (type == typeof(Float16)) { return DataType.Float16; }
            if (type == typeof(BFloat16)) { return DataType.BFloat16; }
            if (type == typeof(Float8E4M3FN)) { return DataType.Float8E4M3FN; }
            if (type == typeof(Float8E5M2)) { return DataType.Float8E5M2; }
            // System.Half came with .NET 5, where netstandard2.0 code may run too.
            return type.FullName == "System.Half" ? DataType.Float16 : DataType.Other;
        }
    }
}
