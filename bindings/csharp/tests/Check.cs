using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using Oxpipe;

/// <summary>Checks that count, so that one failure does not hide the others.</summary>
static class Check
{
    internal static int Failures;

    internal static void That(
        bool condition, string what = "", [CallerFilePath] string file = "", [CallerLineNumber] int line = 0)
    {
        if (!condition)
        {
            Failures++;
            Console.WriteLine(Path.GetFileName(file) + ":" + line + ": " + what);
        }
    }

    internal static void Equal<T>(
        T found, T expected, [CallerFilePath] string file = "", [CallerLineNumber] int line = 0)
    {
        That(EqualityComparer<T>.Default.Equals(found, expected), "found " + found + ", expected " + expected, file, line);
    }

    internal static void Same<T>(
        IEnumerable<T> found, T[] expected, [CallerFilePath] string file = "", [CallerLineNumber] int line = 0)
    {
        T[] all = found.ToArray();
        That(
            all.SequenceEqual(expected), "found [" + string.Join(", ", all) + "], expected [" + string.Join(", ", expected) + "]",
            file, line);
    }

    /// <summary>The call must throw this; gives what it threw.</summary>
    internal static TException Throws<TException>(
        Action call, [CallerFilePath] string file = "", [CallerLineNumber] int line = 0) where TException : Exception
    {
        try
        {
            call();
        }
        catch (TException exception)
        {
            return exception;
        }
        catch (Exception other)
        {
            That(false, "threw " + other, file, line);
            return null;
        }
        That(false, "threw nothing", file, line);
        return null;
    }

    /// <summary>The call must fail so; gives the exception.</summary>
    internal static OxpipeException Fails(
        Status status, string says, Action call, [CallerFilePath] string file = "", [CallerLineNumber] int line = 0)
    {
        OxpipeException failure = Throws<OxpipeException>(call, file, line);
        if (failure != null)
        {
            That(
                failure.Status == status && failure.Message.Contains(says),
                "found " + failure.Status + ": " + failure.Message + "; expected " + status + ", \"" + says + "\"", file, line);
        }
        return failure;
    }
}
